"""What tests of Milepost's users and of Milepost itself share: fakes with real semantics, and a contract.

Nothing here is imported by the running product.
"""
