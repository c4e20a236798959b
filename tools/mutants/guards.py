"""The guards of the checkpoint protocol, each with the edit that takes it out, and all others by name."""

from __future__ import annotations

from typing import Final

from tools.mutants.effect_guards import EFFECT_GUARDS
from tools.mutants.gate_guards import GATE_GUARDS
from tools.mutants.guard import Guard
from tools.mutants.local_guards import LOCAL_GUARDS
from tools.mutants.plan_guards import PLAN_GUARDS
from tools.mutants.standing_guards import STANDING_GUARDS

__all__ = ["GUARDS"]

_SDK: Final = "sdk/milepost/checkpoint"
_ANSWERS: Final = f"{_SDK}/answers.py"
_CLAIM: Final = f"{_SDK}/claim.py"
_COMMITTER: Final = f"{_SDK}/committer.py"
_FOLD: Final = f"{_SDK}/fold.py"
_HEAD: Final = f"{_SDK}/head.py"
_HISTORY: Final = f"{_SDK}/history.py"
_RUNS: Final = f"{_SDK}/runs.py"
_SEALED: Final = f"{_SDK}/sealed.py"
_S3: Final = f"{_SDK}/s3.py"
_T: Final = "tests/sdk/checkpoint"

GUARDS: Final = (
    Guard(
        "byte compare on 412",
        "a write whose answer was lost is taken for somebody else's, and its writer stops for nothing",
        _ANSWERS,
        "case Found(body=body, etag=etag) if body == write.body:",
        "case Found(body=body, etag=etag) if False:",
        f"{_T}/test_answers.py {_T}/test_sending.py",
    ),
    Guard(
        "412 is looked into",
        "a refusal by another writer's head counts as an acknowledgement",
        _ANSWERS,
        'case Stored(etag="") | Clash():\n            return Look()',
        'case Clash():\n            return Done("")\n'
        '        case Stored(etag=""):\n            return Look()',
        f"{_T}/test_answers.py {_T}/test_sending.py",
    ),
    Guard(
        "409 is undecided",
        "a conflict counts as a refusal, and nobody is the writer",
        _ANSWERS,
        "case Gone() | Undecided():\n            return Look()",
        'case Undecided():\n            return Done("")\n        case Gone():\n            return Look()',
        f"{_T}/test_answers.py",
    ),
    Guard(
        "never create on 404",
        "a deleted run comes back by the write of a writer that slept",
        _ANSWERS,
        "case Absent() if not write.etag:",
        "case Absent():",
        f"{_T}/test_answers.py",
    ),
    Guard(
        "404 on If-Match ends the run's writer",
        "a writer of a deleted run goes on for ever",
        _ANSWERS,
        "case Gone() if write.etag:\n            raise _gone(write)",
        "case Gone() if write.etag:\n            return Look()",
        f"{_T}/test_answers.py {_T}/test_committer.py",
    ),
    Guard(
        "epoch check",
        "a head of a newer writer is not recognised as such",
        _ANSWERS,
        "if theirs.epoch > ours.epoch:",
        "if False:",
        f"{_T}/test_answers.py {_T}/test_committer.py",
    ),
    Guard(
        "two writers of one epoch stop loudly",
        "a bug that lets two write is taken for damage of the store",
        _ANSWERS,
        "if theirs.epoch == ours.epoch and (theirs.writer != ours.writer or theirs.seq >= ours.seq):",
        "if False:",
        f"{_T}/test_answers.py",
    ),
    Guard(
        "a create-only object is compared",
        "somebody else's bytes under our key pass for ours",
        _ANSWERS,
        "case Purpose.CREATE:\n            raise Corrupt",
        'case Purpose.CREATE:\n            return Done("")\n            raise Corrupt',
        f"{_T}/test_answers.py",
    ),
    Guard(
        "attempt check",
        "an older pod takes the run back from a newer one",
        _CLAIM,
        "if claimed.attempt <= head.attempt and not again:",
        "if False:",
        f"{_T}/test_claim.py",
    ),
    Guard(
        "the claim raises the epoch",
        "the writer before is not fenced",
        _HEAD,
        "epoch, attempt, writer = epoch + 1, event.attempt, by",
        "epoch, attempt, writer = epoch, event.attempt, by",
        f"{_T}/test_claim.py {_T}/test_head.py",
    ),
    Guard(
        "never claim a terminal head",
        "a run that has ended runs again",
        _CLAIM,
        "if head.phase.terminal:\n        return None",
        "if False:\n        return None",
        f"{_T}/test_claim.py",
    ),
    Guard(
        "never claim a head that is being deleted",
        "a deleted run goes on",
        _CLAIM,
        "if head.phase is Phase.DELETING:\n        raise RunDeleted(head.run_id)",
        "pass",
        f"{_T}/test_claim.py",
    ),
    Guard(
        "how a pod ended is counted once",
        "a pod that claims twice uses up two attempts of its step",
        _CLAIM,
        'return claimed.model_copy(update={"previous_end": None}) if again else claimed',
        "return claimed",
        f"{_T}/test_claim.py",
    ),
    Guard(
        "nothing follows the end",
        "an ended run takes further records",
        _HEAD,
        "if phase.terminal:\n            raise ProtocolBreach",
        "if False:\n            raise ProtocolBreach",
        f"{_T}/test_head.py",
    ),
    Guard(
        "If-Match on the head",
        "the last writer wins, whoever it is",
        _COMMITTER,
        "        outcome = send(self._store, write, self._patience)\n",
        "        standing = self._store.get(write.key)\n"
        "        write = Write(write.purpose, write.key, write.body, write.metadata, standing.etag, head)\n"
        "        outcome = send(self._store, write, self._patience)\n",
        f"{_T}/test_committer.py",
    ),
    Guard(
        "the segment before the head",
        "a crash in between leaves a head that names what is not there",
        _COMMITTER,
        "        for key, body in commit.objects:\n"
        "            send(self._store, Write(Purpose.CREATE, key, body), self._patience)\n"
        "            size += len(body)\n",
        "",
        f"{_T}/test_committer.py",
    ),
    Guard(
        "head before name",
        "a crash in between leaves a name that leads to nothing, which counts as damage",
        _RUNS,
        "        run_id = self._create_head(new)\n        lost = self._write_name(",
        "        run_id = new_run_id(self.entropy)\n        lost = self._write_name(",
        f"{_T}/test_runs.py",
    ),
    Guard(
        "a name changes only from what was seen",
        "two operators give one name to two runs",
        _RUNS,
        "        if self._write_name(new.namespace, _record(new, run_id), etag=name.etag) is not None:\n"
        '            raise Stale(f"the name {new.name} was changed meanwhile")\n',
        "        self._write_name(new.namespace, _record(new, run_id), etag=name.etag)\n",
        f"{_T}/test_runs.py",
    ),
    Guard(
        "If-Match is sent",
        "the store has no condition to check",
        _S3,
        'return self._put(key, body, metadata, {"IfMatch": etag})',
        "return self._put(key, body, metadata, {})",
        "tests/contract/test_store_contract.py",
    ),
    Guard(
        "an empty ETag is no condition",
        "a writer that knows no ETag writes unconditionally",
        _S3,
        "        if not etag:\n            # Some stores",
        "        if False:\n            # Some stores",
        "tests/contract/test_store_contract.py",
    ),
    Guard(
        "no head of a run that is being deleted goes on",
        "the deletion of a run leaves its writer at work, and the run half there",
        _HEAD,
        "        epoch=head.epoch + 1,\n        writer=OPERATOR,\n",
        "        epoch=head.epoch,\n        writer=OPERATOR,\n",
        f"{_T}/test_sweep.py",
    ),
    Guard(
        "what lies beyond the head's segments is kept",
        "a sweep takes the segment of a head that is on its way",
        f"{_SDK}/sweep.py",
        "if each.key in names or span is None or span[2] > covered:",
        "if each.key in names or span is None:",
        f"{_T}/test_sweep.py {_T}/test_deletion.py",
    ),
    Guard(
        "a live run's blobs are kept",
        "a sweep takes the blob of a record that is on its way",
        f"{_SDK}/sweep.py",
        "return Prune((*_merged_away(sight, sight.head), *_older_bases(sight, sight.head)))",
        "return Prune(\n"
        "        (*_merged_away(sight, sight.head), *_older_bases(sight, sight.head)),\n"
        '        tuple(sight.below("blobs")),\n'
        "    )",
        f"{_T}/test_sweep.py",
    ),
    Guard(
        "a run goes only as it was judged",
        "a run that was resumed meanwhile is deleted",
        f"{_SDK}/deletion.py",
        "if not isinstance(again, Remove) or again.cause is not cause:",
        "if False:",
        f"{_T}/test_deletion.py",
    ),
    Guard(
        "the head goes last",
        "what is left of a cut-off deletion has nothing that says what to do with it",
        f"{_SDK}/deletion.py",
        "            others = [each for each in found if each.key != keys.head]\n",
        "            others = list(found)\n",
        f"{_T}/test_deletion.py",
    ),
    Guard(
        "digest of the head",
        "a damaged head is believed",
        _HEAD,
        "if not line.endswith(ending) or digest != _digest(line.removesuffix(ending), rest):",
        "if False:",
        f"{_T}/test_head.py",
    ),
    Guard(
        "digest of a segment",
        "damaged records are believed",
        _SEALED,
        "if hashlib.sha256(body).hexdigest() != named.digest:",
        "if False:",
        f"{_T}/test_head.py {_T}/test_sealed.py",
    ),
    Guard(
        "a segment is the one named",
        "records of another run pass for this one's",
        _SEALED,
        "if any(header[name] != wanted.get(name) for name in header):",
        "if False:",
        f"{_T}/test_head.py {_T}/test_sealed.py",
    ),
    Guard(
        "the chain of digests",
        "a record that was swapped or taken out is not missed",
        _FOLD,
        "if record.prev != self.digest:",
        "if False:",
        f"{_T}/test_fold.py",
    ),
    Guard(
        "no gap in the numbers",
        "a lost record is skipped over",
        _FOLD,
        "if record.seq != self.seq + 1:",
        "if False:",
        f"{_T}/test_fold.py",
    ),
    Guard(
        "epochs never fall",
        "a record of a fenced writer enters the log",
        _FOLD,
        "if record.epoch < self.epoch:",
        "if False:",
        f"{_T}/test_fold.py",
    ),
    Guard(
        "a step is completed once",
        "a step that was done twice is not noticed",
        _FOLD,
        "if step.id in self.completed:",
        "if False:",
        f"{_T}/test_fold.py",
    ),
    Guard(
        "the records end where the header says",
        "a tail that was cut off is not missed",
        _HISTORY,
        "if (state.seq, state.epoch, state.digest) != (head.seq, head.epoch, head.chain):",
        "if False:",
        f"{_T}/test_history.py",
    ),
    Guard(
        "a base falls back to the one before",
        "a damaged cache stops the run",
        _HISTORY,
        "            on_damage(error)\n    return State()\n",
        "            on_damage(error)\n            raise\n    return State()\n",
        f"{_T}/test_cut_off.py",
    ),
    Guard(
        "base verification",
        "a damaged base says which steps are done",
        f"{_SDK}/base.py",
        "if hashlib.sha256(body).hexdigest() != named.digest:",
        "if False:",
        f"{_T}/test_base.py {_T}/test_history.py",
    ),
    Guard(
        "a base is read back before an older one goes",
        "three bases that the store garbled are all that is left",
        _COMMITTER,
        "if before == after or set(before) <= set(after):",
        "if True:",
        f"{_T}/test_committer.py",
    ),
    Guard(
        "digest of a blob",
        "a damaged value is handed to the agent",
        f"{_SDK}/values.py",
        "if hashlib.sha256(found.body).hexdigest() != value.blob:",
        "if False:",
        f"{_T}/test_values.py",
    ),
    Guard(
        "a commit outlives its caller",
        "cancelling a step's task undoes a commit that is on its way",
        _COMMITTER,
        "            if not done.done():\n                done.set_result(None)\n",
        "            done.set_result(None)\n",
        f"{_T}/test_committer.py",
    ),
    Guard(
        "fork check",
        "a forked child writes with its parent's claim",
        _COMMITTER,
        "if os.getpid() != self._pid:",
        "if False:",
        f"{_T}/test_committer.py",
    ),
    Guard(
        "a lost run ends the process in the committer's thread",
        "agent code that blocks the event loop goes on after it was fenced",
        _COMMITTER,
        "        except Exception as error:  # noqa: BLE001  (whatever it is, the outcome is not known)\n"
        "            self._on_lost(error)\n",
        "        except ZeroDivisionError as error:\n            self._on_lost(error)\n",
        f"{_T}/test_committer.py",
    ),
    Guard(
        "a format that is newer is refused",
        "an older program reads what it does not understand",
        f"{_SDK}/formats.py",
        "if found > newest:",
        "if False:",
        f"{_T}/test_head.py {_T}/test_records.py {_T}/test_formats.py",
    ),
    Guard(
        "position is kept",
        "a resume starts from the beginning",
        f"{_SDK}/base.py",
        "            state.complete(*_completed(*completed))\n",
        "            pass\n",
        f"{_T}/test_base.py {_T}/test_history.py",
    ),
    Guard(
        "inputs are kept",
        "nobody can tell what a step was given",
        "sdk/milepost/agent/steps.py",
        "            attempt=number,\n            inputs=inputs,\n            declared=",
        "            attempt=number,\n            declared=",
        "tests/sdk/agent/test_steps.py",
    ),
    Guard(
        "carried results are kept",
        "later steps have nothing to work on",
        "sdk/milepost/agent/steps.py",
        "result = await self.journal.keep(data)",
        "result = await self.journal.keep(None)",
        "tests/sdk/agent/test_steps.py",
    ),
    *EFFECT_GUARDS,
    *GATE_GUARDS,
    *LOCAL_GUARDS,
    *PLAN_GUARDS,
    *STANDING_GUARDS,
)
