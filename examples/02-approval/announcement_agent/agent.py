"""An agent that drafts an announcement, waits for an editor, and publishes what the editor has approved.

While it waits no process is alive: the await below does not return in this process but in a later one, maybe
days later and on another machine. The editor sees exactly the draft that is published, and may say no, with a
reason, for which there is another draft.
"""

from datetime import timedelta
from typing import Literal

from pydantic import BaseModel

from milepost import Call, Denied, Expired, Run, agent, tool

from .drafts import Draft, write
from .outside import hand_over

DRAFTS = 3


class Edition(BaseModel):
    """What the editor says besides yes; an answer that does not fit is refused where it is given."""

    title: str
    audience: Literal["everybody", "customers"]


@tool(effect="keyed")
async def publish(call: Call, draft: Draft, edition: Edition, approved_by: str, receiver: str) -> str:
    page = {**draft.model_dump(), **edition.model_dump(), "approved_by": approved_by}
    identifier = await hand_over(page, call.key, receiver)
    call.record(external_id=identifier)
    return identifier


@agent(version="1")
async def announce(
    run: Run, changes: list[str], receiver: str = "file:pages", patience_hours: float = 72
) -> dict[str, str | None]:
    """Publish an announcement of these changes, once an editor has approved a draft of it.

    Returns what the receiver calls the page, None where nothing was published, and what was said about it.
    `receiver` is the URL of the receiver of the first example, or `file:` and a folder.
    """
    remark = ""
    for number in range(1, DRAFTS + 1):
        run.progress(total=number + 1)
        draft = await run.step("draft", write, changes, remark, key=number)
        try:
            decision = await run.approval(
                "publish",
                key=number,
                request=draft.model_dump(),
                answer=Edition,
                expires=timedelta(hours=patience_hours),
            )
        except Expired:
            return _outcome(None, f"nobody answered within {patience_hours:g} hours")
        except Denied as no:
            remark = no.decision.reason
            run.log.info("denied", extra={"draft": number, "by": no.decision.by, "reason": remark})
            continue
        page = await run.step("publish", publish, draft, decision.answer, decision.by, receiver)
        return _outcome(page, f"approved by {decision.by} as draft {number}")
    return _outcome(None, f"{DRAFTS} drafts were denied, the last one: {remark or 'no reason'}")


def _outcome(page: str | None, said: str) -> dict[str, str | None]:
    return {"page": page, "said": said}
