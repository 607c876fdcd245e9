"""The two optimizers that the quickstart compares, behind one small interface.

    with create(args, model) as optimizer:
        loss_of(optimizer.model, batch).backward()
        optimizer.step()          # update, schedule, gradients cleared
"""

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR

import settings
from model import is_hidden_matrix

BETAS = (0.9, 0.95)


def create(args, model):
    kind = Dmuond if args.optimizer == "dmuond" else AdamW
    return kind(args, model, settings.chosen(args))


class AdamW:
    """The baseline: torch.optim.AdamW under DistributedDataParallel."""

    def __init__(self, args, model, chosen):
        self.settings = chosen
        self.model = model
        if args.trainers > 1:
            self.model = _data_parallel(args, model)
        decayed = [p for p in model.parameters() if p.dim() >= 2]
        others = [p for p in model.parameters() if p.dim() < 2]
        self._optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": chosen["weight_decay"]},
             {"params": others, "weight_decay": 0.0}], lr=chosen["lr"], betas=BETAS)
        self._schedule = LambdaLR(self._optimizer, settings.schedule(args.steps))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    def step(self):
        if self.settings["max_grad_norm"]:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings["max_grad_norm"])
        self._optimizer.step()
        self._schedule.step()
        self._optimizer.zero_grad(set_to_none=True)


def _data_parallel(args, model):
    torch.distributed.init_process_group("gloo", init_method=f"file://{args.rendezvous}",
                                         rank=args.trainer, world_size=args.trainers)
    return DistributedDataParallel(model)


class Dmuond:
    """Muon through the daemon: the owners average the trainers' gradients and update everything.

    Hidden matrices go to Muon, the fused QKV projection as three; the rest is AdamW's.
    """

    def __init__(self, args, model, chosen):
        from dmuond.torch import DMuon  # only this optimizer needs the package

        self.settings = chosen
        self.model = model
        named = list(model.named_parameters())
        decay = chosen["weight_decay"]
        adamw = {"rule": "adamw", "lr": chosen["adamw_lr"], "betas": BETAS}
        hidden = [item for item in named if is_hidden_matrix(*item)]
        tables = [item for item in named if item[1].dim() >= 2 and not is_hidden_matrix(*item)]
        vectors = [item for item in named if item[1].dim() < 2]
        width = model.tokens.embedding_dim
        self._optimizer = DMuon(
            [{"name": "hidden", "params": hidden, "rule": "muon", "lr": chosen["lr"],
              "weight_decay": decay},
             {"name": "tables", "params": tables, "weight_decay": decay, **adamw},
             {"name": "vectors", "params": vectors, "weight_decay": 0.0, **adamw}],
            views={"*.qkv.weight": {"split_rows": [width, width, width]}},
            spec={"max_grad_norm": chosen["max_grad_norm"] or None},
            address=args.address, trainer=args.trainer, trainers=args.trainers,
            channel=args.channel, contribution="partial")
        self._schedule = LambdaLR(self._optimizer, settings.schedule(args.steps))

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        if kind is None:
            self._optimizer.close()

    def step(self):
        self._optimizer.step()
        self._schedule.step()
        self._optimizer.zero_grad(set_to_none=True)
