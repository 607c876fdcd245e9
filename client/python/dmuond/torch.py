"""dmuond.torch.DMuon: Muon by the daemon as a torch.optim.Optimizer.

    optimizer = DMuon(model.named_parameters(), lr=0.02, adamw=["wte.*", "lm_head.*"])
    loss.backward()
    optimizer.step()
"""

from __future__ import annotations

import fnmatch
import logging
import warnings

import numpy as np
import torch

from dmuond import errors
from dmuond.parameters import suggest
from dmuond.report import StepReport
from dmuond.session import Session

_DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
# What a param_group may change between steps; the rest of it goes into the session spec.
_STEP_VALUES = {
    "muon": ("lr", "weight_decay", "momentum"),
    "adamw": ("lr", "weight_decay", "betas"),
}
_NOT_IN_SPEC = ("params", "param_names", "name", "initial_lr")
_log = logging.getLogger("dmuond")


class DMuon(torch.optim.Optimizer):
    """Hands gradients to dmuond and copies updated parameters back, in place.

    params is either `model.named_parameters()` (two groups are made, "muon" and "adamw"), or a list
    of groups, dicts with `params` (pairs of name and parameter), `rule` ("muon" or "adamw"), `lr`
    and any other group option of the session spec; `name` names the group. lr, weight_decay,
    momentum and betas of `param_groups` count at each step, so learning rate schedulers work.

    Momentum and moments live in the daemon: `state_dict` holds the param_groups only.
    """

    def __init__(self, params, *, lr: float = 0.02, weight_decay: float = 0.0,
                 momentum: float = 0.95, adamw=None, adamw_lr: float = 1e-3,
                 adamw_weight_decay: float = 0.01, adamw_betas=(0.9, 0.999), views=None,
                 spec: dict | None = None, trainer: int | None = None, trainers: int | None = None,
                 **session):
        """Opens the session and returns when all trainers have; raises dmuond.Error.

        adamw: which tensors of two and more dimensions AdamW updates (embeddings, the output head):
        name patterns like "lm_head.*", or a function of (name, parameter); [] for none. Fewer
        dimensions always go to AdamW. Needed unless params are groups. views: pattern to the view
        of fused or stacked parameters, {"*.qkv.weight": {"split_rows": [768, 768, 768]}}; four and
        more dimensions are flattened to (first, rest) unless named here. spec: further top-level
        keys of the session spec, {"preset": "moonlight", "max_grad_norm": 1.0}; numbers given here
        win over the preset's. trainer, trainers: by default torch.distributed's rank and world
        size where it is initialised, else 0 and 1. Others (address, channel, contribution,
        step_timeout, ...) as in Session.open. Gradients that DDP has averaged may be pushed with
        either contribution.
        """
        params = list(params)
        if not params:
            raise errors.InvalidArgument("DMuon: no parameters: pass model.named_parameters()")
        if not isinstance(params[0], dict):
            rules = {
                "muon": {"lr": lr, "weight_decay": weight_decay, "momentum": momentum},
                "adamw": {"lr": adamw_lr, "weight_decay": adamw_weight_decay, "betas": adamw_betas}}
            params = _groups_by_rule(params, adamw, rules)
        groups = [_named_group(group, index) for index, group in enumerate(params)]
        self._session: Session | None = None
        super().__init__(groups, {})
        self._tensors = {name: tensor for group in self.param_groups
                         for name, tensor in zip(group["param_names"], group["params"])}
        if len(self._tensors) != sum(len(group["params"]) for group in self.param_groups):
            raise errors.InvalidArgument("DMuon: two parameters have the same name")
        self.spec = _spec_of(self.param_groups, views or {}, spec or {})
        arrays = {name: _array_of(tensor) for name, tensor in self._tensors.items()}
        rank, size = _rank_and_size()
        self._session = Session.open(
            self.spec, trainer=rank if trainer is None else trainer,
            trainers=size if trainers is None else trainers, parameters=arrays, **session)
        if self._session.resumed:
            self._copy_back()
        self.last_report: StepReport | None = None

    @property
    def session(self) -> Session:
        """The dmuond.Session underneath."""
        return self._session

    @torch.no_grad()
    def step(self, closure=None, *, grad_scale: float = 1.0):
        """One step; `last_report` then says what happened. Returns the closure's loss, if any.

        Parameters whose .grad is None are absent: not updated, no decay. Gradients are divided by
        grad_scale. Raises StepAborted when a trainer is missing; a step that was skipped because
        something was not finite is logged.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gradients = {name: None if tensor.grad is None else _array_of(tensor.grad)
                     for name, tensor in self._tensors.items()}
        self._session.begin_step(self._group_values(), grad_scale)
        self._session.push_all(gradients)
        report = self._session.step()
        if report.committed:
            self._copy_back()
        else:
            _log.warning("step %d was %s: %s", report.step, report.outcome, report.reason)
        self.last_report = report
        return loss

    def _group_values(self) -> dict[str, dict]:
        return {group["name"]: {key: group[key] for key in _STEP_VALUES[group["rule"]]
                                if key in group}
                for group in self.param_groups}

    def _copy_back(self) -> None:
        """Into tensors that are not the session's arrays themselves: on a GPU, not contiguous."""
        for name, array in self._session.wait_all().items():
            tensor = self._tensors[name]
            if tensor.data_ptr() != array.ctypes.data:
                tensor.copy_(_tensor_of(array, tensor.dtype).reshape(tensor.shape))

    def close(self) -> None:
        """Leaves the session; also done when the program ends."""
        self._session.close()

    def add_param_group(self, param_group: dict) -> None:
        if getattr(self, "_session", None) is not None:
            raise errors.StateError(
                "DMuon: parameters cannot be added to an open session: build the optimizer with "
                "all of them")
        super().add_param_group(param_group)

    def state_dict(self) -> dict:
        """The param_groups, and which step the daemon is at; its state is not in here."""
        return {**super().state_dict(), "dmuond": {"next_step": self._session.next_step}}

    def load_state_dict(self, state_dict: dict) -> None:
        """Takes the param_groups; warns when the daemon's own state is that of another step."""
        state_dict = dict(state_dict)
        saved = state_dict.pop("dmuond", {}).get("next_step")
        super().load_state_dict(state_dict)
        if saved != self._session.next_step:
            warnings.warn(
                f"DMuon: the file was written before step {saved}, the daemon is before step "
                f"{self._session.next_step}: momentum lives in the daemon and was not changed",
                stacklevel=2)

    def __getstate__(self):
        raise errors.StateError("DMuon cannot be copied or pickled: its state is in the daemon")


def _rank_and_size() -> tuple[int, int]:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def _adamw_names(named, adamw) -> set[str]:
    """Names of the parameters that AdamW updates; see DMuon.__init__."""
    vectors = {name for name, tensor in named if tensor.ndim < 2}
    if callable(adamw):
        return vectors | {name for name, tensor in named if adamw(name, tensor)}
    names = [name for name, _ in named]
    if adamw is None:
        raise errors.InvalidArgument(
            "DMuon: say which matrices AdamW should update, usually embeddings and the output "
            "head: adamw=['wte.*', 'lm_head.*'], or adamw=[] for none")
    for pattern in [adamw] if isinstance(adamw, str) else adamw:
        matches = fnmatch.filter(names, pattern)
        if not matches:
            raise errors.InvalidArgument(
                f"DMuon: adamw pattern '{pattern}' matches no parameter{suggest(pattern, names)}")
        vectors.update(matches)
    return vectors


def _groups_by_rule(named, adamw, rules) -> list[dict]:
    for item in named:
        if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)):
            raise errors.InvalidArgument(
                "DMuon needs names: pass model.named_parameters(), not model.parameters()")
    trained = [(name, tensor) for name, tensor in named if tensor.requires_grad]
    names = _adamw_names(trained, adamw)
    groups = []
    for rule, values in rules.items():
        members = [item for item in trained if (item[0] in names) == (rule == "adamw")]
        if members:
            groups.append({"params": members, "name": rule, "rule": rule, **values})
    return groups


def _named_group(group: dict, index: int) -> dict:
    """A param_group as torch.optim wants it, with the names beside the tensors."""
    group = dict(group)
    members = list(group["params"])
    if not all(isinstance(member, tuple) and len(member) == 2 for member in members):
        raise errors.InvalidArgument(
            f"DMuon: param group {index} needs pairs of name and parameter in 'params'")
    if group.get("rule") not in _STEP_VALUES or "lr" not in group:
        raise errors.InvalidArgument(
            f"DMuon: param group {index} needs rule ('muon' or 'adamw') and lr")
    group["param_names"] = [name for name, _ in members]
    group["params"] = [tensor for _, tensor in members]
    group.setdefault("name", f"group{index}")
    return group


def _view_of(name: str, tensor, rule: str, views: dict):
    """The spec's view of a parameter, or None where it needs none."""
    if rule == "adamw":
        return None
    for pattern, view in views.items():
        if fnmatch.fnmatchcase(name, pattern):
            return view
    if tensor.ndim == 3:
        raise errors.InvalidArgument(
            f"DMuon: '{name}' of shape {list(tensor.shape)} needs a view: "
            f"views={{'{name}': 'stack'}} for a stack of matrices, 'flatten' for a convolution")
    return "flatten" if tensor.ndim > 3 else None


def _spec_of(groups, views: dict, top: dict) -> dict:
    names = [name for group in groups for name in group["param_names"]]
    for pattern in views:
        if not fnmatch.filter(names, pattern):
            raise errors.InvalidArgument(
                f"DMuon: view pattern '{pattern}' matches no parameter{suggest(pattern, names)}")
    parameters, spec_groups = [], {}
    for group in groups:
        spec_groups[group["name"]] = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in group.items() if key not in _NOT_IN_SPEC}
        for name, tensor in zip(group["param_names"], group["params"]):
            if tensor.dtype not in _DTYPES or type(tensor).__name__ == "DTensor":
                raise errors.InvalidArgument(
                    f"DMuon: '{name}' is a {type(tensor).__name__} of {tensor.dtype}: only whole "
                    f"float32, float16 and bfloat16 tensors; for shards use dmuond.Session")
            entry = {"name": name, "shape": list(tensor.shape) or [1],
                     "dtype": _DTYPES[tensor.dtype], "group": group["name"]}
            view = _view_of(name, tensor, group["rule"], views)
            parameters.append({**entry, "view": view} if view else entry)
    return {**top, "groups": spec_groups, "parameters": parameters}


def _array_of(tensor: torch.Tensor) -> np.ndarray:
    """A numpy array of the tensor's values: its own memory where that is possible, else a copy.

    A tensor without dimensions becomes an array of one element: the spec knows no scalars.
    """
    tensor = tensor.detach()
    if tensor.ndim == 0:
        tensor = tensor.reshape(1)
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    tensor = tensor.cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()


def _tensor_of(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
