"""LangGraph in its own environment: one case a process, its figures as one line of JSON on standard output.

    python -m tests.bench.peers.langgraph_graph CASE SETTINGS

A graph as its documentation shows it: results and messages live in the state, which the saver stores after
each superstep, synchronously. It knows nothing of Milepost. `saver` names where checkpoints go:
`{"kind": "sqlite", "path": …}`, `{"kind": "postgres", "dsn": …}` or `{"kind": "s3", "url": …, …}`.
"""

from __future__ import annotations

import json
import operator
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph  # type: ignore[import-not-found]  # only in its own environment
from langgraph.types import Command, interrupt  # type: ignore[import-not-found]  # only in its own environment

from tests.bench.payload import conversation, text

THREAD = "bench"


class Results(TypedDict):
    """The state of a graph that collects results."""

    results: Annotated[list[str], operator.add]
    total: int
    size: int


class Messages(TypedDict):
    """The state of a graph that talks."""

    messages: Annotated[list[dict[str, Any]], operator.add]
    turns: int
    total: int
    size: int


class Decision(TypedDict, total=False):
    """The state of a graph that asks once."""

    ledger: str
    answer: str


@contextmanager
def saver(where: dict[str, Any]) -> Iterator[Any]:
    """Open a checkpointer as its own page says."""
    if where["kind"] == "sqlite":
        from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore[import-not-found]  # noqa: PLC0415  (as above; a case needs one saver)

        with SqliteSaver.from_conn_string(where["path"]) as made:
            yield made
    elif where["kind"] == "postgres":
        from langgraph.checkpoint.postgres import PostgresSaver  # type: ignore[import-not-found]  # noqa: PLC0415  (as above; a case needs one saver)

        with PostgresSaver.from_conn_string(where["dsn"]) as made:
            made.setup()
            yield made
    else:
        import langgraph_checkpoint_objectstorage as objects  # type: ignore[import-not-found]  # noqa: PLC0415  (as above; a case needs one saver)

        yield objects.ObjectStorageSaver.from_conn_string(
            where["url"],
            key=where["key"],
            secret=where["secret"],
            client_kwargs={"endpoint_url": where["endpoint"], "region_name": where["region"]},
        )


def steps(settings: dict[str, Any]) -> dict[str, Any]:
    """Run `total` supersteps that add a result of `size` characters each."""

    def work(state: Results) -> dict[str, Any]:
        return {"results": [text(len(state["results"]), state["size"])]}

    def more(state: Results) -> str:
        return "work" if len(state["results"]) < state["total"] else END

    building: Any = StateGraph(Results)
    building.add_node("work", work)
    building.add_edge(START, "work")
    building.add_conditional_edges("work", more)
    total = settings["total"]
    return _timed(building, settings, {"results": [], "total": total, "size": settings["size"]}, total)


def talk(settings: dict[str, Any]) -> dict[str, Any]:
    """Run `total` turns on a conversation; each reads all of it and adds a message."""

    def turn(state: Messages) -> dict[str, Any]:
        assert state["messages"], "the model reads the whole conversation"
        said = {"role": "tool", "content": text(state["turns"], state["size"])}
        return {"messages": [said], "turns": state["turns"] + 1}

    def more(state: Messages) -> str:
        return "turn" if state["turns"] < state["total"] else END

    building: Any = StateGraph(Messages)
    building.add_node("turn", turn)
    building.add_edge(START, "turn")
    building.add_conditional_edges("turn", more)
    begin = {"messages": conversation(settings["opening"]), "turns": 0}
    total = settings["total"]
    return _timed(building, settings, {**begin, "total": total, "size": settings["size"]}, total)


def _timed(building: Any, settings: dict[str, Any], state: dict[str, Any], total: int) -> dict[str, Any]:
    with saver(settings["saver"]) as checkpointer:
        graph = building.compile(checkpointer=checkpointer)
        if settings.get("warm_up"):
            few = {**state, "total": settings["warm_up"]}
            graph.invoke(few, _config("warm-up", total), durability="sync")
        began = time.perf_counter()
        graph.invoke(state, _config(THREAD, total), durability="sync")
        took = time.perf_counter() - began
    return {"ms_per_step": took * 1000 / total}


def _config(thread: str, total: int = 10) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread}, "recursion_limit": total + 10}


def ask(settings: dict[str, Any]) -> dict[str, Any]:
    """Bring a graph to the point where it waits for a person."""
    with saver(settings["saver"]) as checkpointer:
        said = (
            _asking()
            .compile(checkpointer=checkpointer)
            .invoke({"ledger": settings["ledger"]}, _config(THREAD), durability="sync")
        )
    return {"waiting": "__interrupt__" in said}


def answer(settings: dict[str, Any]) -> dict[str, Any]:
    """Answer the waiting graph as soon as a line comes on standard input."""
    with saver(settings["saver"]) as checkpointer:
        graph = _asking().compile(checkpointer=checkpointer)
        print("ready", flush=True)
        sys.stdin.readline()
        said = graph.invoke(Command(resume=settings["answer"]), _config(THREAD), durability="sync")
    return {"answer": said.get("answer", "")}


def _asking() -> Any:
    def decide(state: Decision) -> dict[str, Any]:
        said = interrupt("transfer the money?")
        # The effect that the answer was asked for.
        note(Path(state["ledger"]), {"acted": said})
        return {"answer": said}

    building: Any = StateGraph(Decision)
    building.add_node("decide", decide)
    building.add_edge(START, "decide")
    building.add_edge("decide", END)
    return building


def note(ledger: Path, line: dict[str, Any]) -> None:
    """Add a line to a ledger, on disk when this returns."""
    with ledger.open("a") as file:
        file.write(json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())


CASES = {"steps": steps, "talk": talk, "ask": ask, "answer": answer}

if __name__ == "__main__":
    print(json.dumps(CASES[sys.argv[1]](json.loads(sys.argv[2]))), flush=True)
