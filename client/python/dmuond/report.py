"""What a step did, as plain data."""

from __future__ import annotations

import dataclasses

from dmuond._generated import control_pb2

_OUTCOMES = {
    control_pb2.STEP_OUTCOME_COMMITTED: "committed",
    control_pb2.STEP_OUTCOME_SKIPPED: "skipped",
    control_pb2.STEP_OUTCOME_ABORTED: "aborted",
}


@dataclasses.dataclass(frozen=True)
class Orthogonalised:
    """How many matrices one rule, form and precision updated."""

    rule: str
    form: str
    precision: str
    matrices: int


@dataclasses.dataclass(frozen=True)
class StepReport:
    """The result of one step, the same for every trainer.

    `outcome` is "committed", "skipped" (something was not finite, `parameter` names it; nothing
    changed and the step's number is used up) or "aborted" (the same number is repeated).
    `grad_norm` is after grad_scale and reduction, before clipping by `clip_factor`. Times are in
    seconds; `owner_compute_s` is every owner's compute time, by rank, 0 for one that had not finished
    when the step ended.
    """

    step: int
    outcome: str
    reason: str
    parameter: str
    grad_norm: float
    clip_factor: float
    orthogonalised: tuple[Orthogonalised, ...]
    optimizer_s: float
    busiest_owner_s: float
    owner_compute_s: tuple[float, ...]
    next_step: int
    absent_parameters: int

    @property
    def committed(self) -> bool:
        return self.outcome == "committed"


def report_from(proto) -> StepReport:
    return StepReport(
        step=proto.step,
        outcome=_OUTCOMES.get(proto.outcome, f"unknown ({proto.outcome})"),
        reason=proto.reason,
        parameter=proto.parameter,
        grad_norm=proto.grad_norm,
        clip_factor=proto.clip_factor,
        orthogonalised=tuple(
            Orthogonalised(o.rule, o.form, o.precision, o.matrices) for o in proto.orthogonalised),
        optimizer_s=proto.optimizer_s,
        busiest_owner_s=proto.busiest_owner_s,
        owner_compute_s=tuple(proto.owner_compute_s),
        next_step=proto.next_step,
        absent_parameters=proto.absent_parameters)
