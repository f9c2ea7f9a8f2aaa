"""Whole runs in this process on the tests' shared engine: plan, apply and record as the command line does, without
another Spark."""

from __future__ import annotations

import json
import threading
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from flowctl.engine.base import Engine
from flowctl.engine.lazy import LazyEngine
from flowctl.engine.session import has_jvm
from flowctl.model.step import Plan
from flowctl.plan.planning import make_plan
from flowctl.resolve.resolve import PlanOptions
from flowctl.run import apply as run
from flowctl.run import context
from flowctl.run.changed_rows import Sampling
from flowctl.run.dry_run import DryRun, with_effects
from flowctl.spec.load import load_spec
from flowctl.spec.spec import Spec
from flowctl.spec.template import literal


@dataclass
class SharedRuns:
    """``folder`` holds the spec and everything local that it names; ``said`` is what the last run said."""

    folder: Path
    engine: Engine
    monkeypatch: pytest.MonkeyPatch
    said: list[str] = field(default_factory=list)

    @property
    def has_jvm(self) -> bool:
        return has_jvm(self.engine.spark)

    def spec(self, document: dict[str, Any]) -> Spec:
        """Of a spec as it is meant: what a template or a placeholder would change in its texts is escaped."""
        path = self.folder / "flow.yaml"
        if not self.has_jvm:
            document = {**document, "spark": {"url": "sail"}}
        path.write_text(json.dumps(_escaped(document), ensure_ascii=False))  # which is YAML
        return load_spec([path], {})

    def plan(self, document: dict[str, Any], **options: Any) -> Plan:
        return make_plan(self.spec(document), PlanOptions(**options)).plan

    def effects(self, document: dict[str, Any], rows: int = 0, *, with_values: bool = False, **options: Any) -> Plan:
        """The plan with what a run would change."""
        self._share_engine()
        spec = self.spec(document)
        planned = make_plan(spec, PlanOptions(**options))
        return with_effects(spec, planned, DryRun(Sampling(rows, with_values), lambda _: None, self.said.append))

    def apply(self, document: dict[str, Any], **options: Any) -> run.RunResult:
        self._share_engine()
        audience = run.Audience(lambda _: True, lambda _: None, self.said.append)
        return run.apply(self.spec(document), run.ApplyOptions(PlanOptions(**options)), audience)

    def _share_engine(self) -> None:
        shared = copy(self.engine)
        shared._sessions, shared._lock = {}, threading.Lock()
        self.monkeypatch.setattr(context, "engine_for", lambda *_: LazyEngine(lambda _: shared, {}))


def _escaped(value: Any) -> Any:
    match value:
        case str():
            return literal(value)
        case list():
            return [_escaped(each) for each in value]
        case dict():
            return {key: _escaped(each) if key not in ("url", "sql") else each for key, each in value.items()}
        case _:
            return value
