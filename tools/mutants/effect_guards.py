"""The guards of tools' effects: no call is repeated blindly, and none is taken for another."""

from __future__ import annotations

from typing import Final

from tools.mutants.guard import Guard

__all__ = ["EFFECT_GUARDS"]

_SDK: Final = "sdk/milepost/agent"
_ATTEMPT: Final = f"{_SDK}/attempt.py"
_EFFECTS: Final = f"{_SDK}/effects.py"
_RECORDED: Final = f"{_SDK}/recorded.py"
_T: Final = "tests/sdk/agent"
_INTENTS: Final = f"{_T}/test_effects_intents.py"
_ERRORS: Final = f"{_T}/test_effects_errors.py"
_CALLS: Final = f"{_T}/test_effects_recorded.py"

EFFECT_GUARDS: Final = (
    Guard(
        "intent before the call",
        "a call that was cut off leaves no trace, and is made again",
        _EFFECTS,
        "await self.journal.commit(intent)",
        "await asyncio.sleep(0)",
        _INTENTS,
    ),
    Guard(
        "an intent is stored at once",
        "a call is made while its intent is only in memory",
        _EFFECTS,
        "await self.journal.commit(intent)",
        "await self.journal.commit(intent, deferrable=True)",
        _INTENTS,
    ),
    Guard(
        "verify needs a proof",
        "a tool is asked while the call may still be under way elsewhere, and the call is made twice",
        _EFFECTS,
        "if not self.journal.surely_ended(intent.attempt):",
        "if False:",
        _INTENTS,
    ),
    Guard(
        "verify waits until the effect shows",
        "an effect that shows late is taken for none",
        _EFFECTS,
        "if waited < settles_within:",
        "if False:",
        f"{_INTENTS} {_ERRORS}",
    ),
    Guard(
        "verify is about the same arguments",
        "a tool is asked about a call that was never made, and the one that was is forgotten",
        _EFFECTS,
        "if intent.arguments != self.asked.arguments:",
        "if False:",
        _INTENTS,
    ),
    Guard(
        "a person's word stands",
        "a decision is overruled by a tool that is asked once more",
        _EFFECTS,
        "if not await is_decided(self.journal, intent.step, about, _OPTIONS):",
        "if True:",
        _INTENTS,
    ),
    Guard(
        "each try of a call is a question of its own",
        "a decision about one call lets the next one be repeated",
        _EFFECTS,
        '        "started": intent.started_at,\n',
        "",
        _INTENTS,
    ),
    Guard(
        "a person's result is one of the tool's",
        "the agent goes on with a result of another type",
        _EFFECTS,
        "return Happened(wanted.fit(data)[1])",
        "return Happened(data)",
        _INTENTS,
    ),
    Guard(
        "what a call raises leaves its outcome open",
        "a call that raised after its effect is made again",
        _EFFECTS,
        "except NotApplied as error:",
        "except Exception as error:",
        _ERRORS,
    ),
    Guard(
        "a cancellation waits for the outcome",
        "a step is stopped while nobody knows what its call came to",
        _EFFECTS,
        "return await unbroken(self._settle(intent, error))",
        "return await self._settle(intent, error)",
        _ERRORS,
    ),
    Guard(
        "finding out takes no time of the step's",
        "a step fails for a timeout although its effect has happened in time",
        _EFFECTS,
        "with self.untimed():",
        "if True:",
        _ERRORS,
    ),
    Guard(
        "a call that was not made is not open",
        "a run halts for a call that was cancelled before it was made",
        _EFFECTS,
        "        except asyncio.CancelledError as error:\n"
        "            await self.record(self._ended(began, error=error_data(error)))\n"
        "            raise\n",
        "        except asyncio.CancelledError:\n            raise\n",
        _ERRORS,
    ),
    Guard(
        "the result is kept with its call",
        "a step that fails after an effect has it again when it is tried again",
        _EFFECTS,
        "result = await self.journal.keep(data, MAX_INLINE)",
        "result = None if data else None",
        _INTENTS,
    ),
    Guard(
        "an effect without a storable result has happened",
        "it is made again for the sake of its result",
        _ATTEMPT,
        "            if tool.has_intent:\n                # It happened",
        "            if False:\n                # It happened",
        _INTENTS,
    ),
    Guard(
        "no step ends with an open call",
        "an effect of which nobody knows is forgotten with its step",
        _ATTEMPT,
        "if number not in self._reached:",
        "if False:",
        _INTENTS,
    ),
    Guard(
        "a step waits for its calls",
        "a call is under way when its step is recorded as completed",
        _ATTEMPT,
        "while self._under_way:",
        "while False:",
        _ERRORS,
    ),
    Guard(
        "attempts that are used up hide no open call",
        "a step fails, and nobody ever learns whether its effect happened",
        f"{_SDK}/steps.py",
        "if attempt > self._limit() and not self.journal.state.intents.get(self.place.id):",
        "if attempt > self._limit():",
        _INTENTS,
    ),
    Guard(
        "irreversible calls are made once",
        "a step that is withdrawn, or a run that begins anew, does again what cannot be taken back",
        _RECORDED,
        'if asked.effect == "irreversible" and asked.key in journal.state.once:',
        "if False:",
        _CALLS,
    ),
    Guard(
        "an irreversible call stands for its arguments",
        "what was done is taken for something else that is to be done",
        _RECORDED,
        "if once.arguments != asked.arguments:",
        "if False:",
        _CALLS,
    ),
    Guard(
        "the generation is in the key",
        "what is to be done anew is taken for what was done before",
        _ATTEMPT,
        'step = f"{self.step}~{again}" if again and tool.effect != "irreversible" else self.step',
        "step = self.step",
        _CALLS,
    ),
    Guard(
        "irreversible calls have no generation",
        "a withdrawn step does again what cannot be taken back",
        _ATTEMPT,
        'if again and tool.effect != "irreversible" else',
        "if again else",
        _CALLS,
    ),
    Guard(
        "a call of another tool is not taken for this one",
        "a tool that is gone is forgotten, with what it may have done",
        _RECORDED,
        "if recorded.tool != tool.name:",
        "if False:",
        _CALLS,
    ),
    Guard(
        "a call of another version is not taken for this one",
        "a result that today's tool would not give is used in its name",
        _RECORDED,
        "if tool.version not in (recorded.version, accepted):",
        "if False:",
        _CALLS,
    ),
    Guard(
        "a key stands for its arguments",
        "a receiver is given a key that it knows with other arguments",
        _RECORDED,
        "if known.arguments != asked.arguments:",
        "if False:",
        f"{_T}/test_tools.py",
    ),
    Guard(
        "a call without an effect is given back to the same arguments only",
        "a step is given the answer to another question",
        _RECORDED,
        "known.error is None and _same(known, asked) else None",
        "known.error is None else None",
        _CALLS,
    ),
    Guard(
        "what needs an approval is a step",
        "a call is made that nobody was shown",
        f"{_SDK}/tools.py",
        "        if self.requires_approval:",
        "        if False:",
        _ERRORS,
    ),
    Guard(
        "a plain function's thread is waited out",
        "a call is recorded as failed, and made again, while its thread is still at work",
        f"{_SDK}/threads.py",
        "await unbroken(asyncio.to_thread(outcome, fn, args, kwargs))",
        "await asyncio.to_thread(outcome, fn, args, kwargs)",
        f"{_T}/test_plain_tools.py",
    ),
)
