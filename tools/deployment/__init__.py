"""Milepost installed on a test cluster: what the demo, the tests on the cluster and the benchmarks share.

`installed()` is the way in. It builds the images, loads them, installs the chart, and is quick where all of
that is there already.
"""

from tools.deployment.installation import Deployment, documents_run, installed
from tools.deployment.kube import Kube, NotFound, Refused
from tools.deployment.receiver import Receiver, receiving

__all__ = ["Deployment", "Kube", "NotFound", "Receiver", "Refused", "documents_run", "installed", "receiving"]
