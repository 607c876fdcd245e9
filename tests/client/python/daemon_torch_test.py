"""DMuon against real owners."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from dmuond.torch import DMuon  # noqa: E402


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(20, 8)
        self.hidden = torch.nn.Linear(32, 16)
        self.temperature = torch.nn.Parameter(torch.tensor(1.0))
        self.head = torch.nn.Linear(16, 20)

    def forward(self, tokens):
        return self.head(torch.tanh(self.hidden(self.embed(tokens).flatten(1)))) * self.temperature


def batches(workers=0):
    generator = torch.Generator().manual_seed(1)
    data = torch.utils.data.TensorDataset(torch.randint(0, 20, (64, 4), generator=generator),
                                          torch.randint(0, 20, (64,), generator=generator))
    return torch.utils.data.DataLoader(data, 16, num_workers=workers)


def losses(model, optimizer, schedule, workers=0):
    result = []
    for tokens, targets in batches(workers):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(tokens), targets)
        loss.backward()
        optimizer.step()
        schedule.step()
        result.append(loss.item())
    return result


def halving(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)


def test_is_adamw_where_adamw_was_asked_for(daemon):
    ours, theirs = Model(), Model()
    optimizer = DMuon(ours.named_parameters(), adamw=["*"], adamw_lr=0.01, address=daemon.address)
    reference = torch.optim.AdamW(theirs.parameters(), lr=0.01, weight_decay=0.01)
    np.testing.assert_allclose(losses(ours, optimizer, halving(optimizer)),
                               losses(theirs, reference, halving(reference)), rtol=1e-5)
    optimizer.close()
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters()):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6, msg=name)


def test_muon_follows_formula_schedule_and_decay(daemon):
    weight = torch.nn.Parameter(torch.eye(2))
    optimizer = DMuon([("w", weight)], lr=0.1, weight_decay=0.1, adamw=[], address=daemon.address)
    weight.grad = torch.diag(torch.tensor([3.0, 4.0]))
    optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.diag(torch.tensor([0.958724, 0.958226])),
                               rtol=0, atol=1e-5)
    assert optimizer.last_report.orthogonalised[0].matrices == 1
    # A learning rate of zero moves nothing: the schedule reaches the daemon.
    before = weight.detach().clone()
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step()
    assert torch.equal(weight.detach(), before)
    weight.grad = None
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()
    assert torch.equal(weight.detach(), before) and optimizer.last_report.absent_parameters == 1
    optimizer.close()


def test_learns_with_data_loader_workers(daemon):
    model = Model()
    optimizer = DMuon(model.named_parameters(), lr=0.02, adamw=["embed.*", "head.*"],
                      adamw_lr=0.01, spec={"max_grad_norm": 1.0}, address=daemon.address)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 32)
    curve = [losses(model, optimizer, schedule, workers=2) for _ in range(8)]
    optimizer.close()
    assert np.mean(curve[-1]) < 0.85 * np.mean(curve[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_parameters_are_rounded_masters(daemon, dtype):
    weight = torch.nn.Parameter(torch.ones(4, dtype=dtype))
    optimizer = DMuon([("w", weight)], adamw=[], adamw_lr=2.0**-10, adamw_weight_decay=0.0,
                      address=daemon.address)
    for _ in range(8):  # each moves by lr: less than half a bf16 step below 1
        weight.grad = torch.ones(4, dtype=dtype)
        optimizer.step()
    optimizer.close()
    assert weight.tolist() == [0.9921875] * 4


def test_tensors_that_numpy_cannot_share_are_copied_back(daemon):
    turned = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3).T)
    plain = torch.nn.Parameter(turned.detach().clone(memory_format=torch.contiguous_format))
    optimizer = DMuon([("turned", turned), ("plain", plain)], adamw=["*"], address=daemon.address)
    turned.grad = torch.ones(3, 2)
    plain.grad = torch.ones(3, 2)
    optimizer.step()
    optimizer.close()
    assert torch.equal(turned, plain) and turned[0, 0] != 0


def test_state_dict_holds_groups_and_says_what_it_lacks(daemon):
    weight = torch.nn.Parameter(torch.eye(2))
    optimizer = DMuon([("w", weight)], lr=0.1, adamw=[], address=daemon.address)
    saved = optimizer.state_dict()
    assert saved["dmuond"] == {"next_step": 1}
    weight.grad = torch.eye(2)
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.5
    with pytest.warns(UserWarning, match="before step 1, the daemon is before step 2"):
        optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] == 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.load_state_dict(optimizer.state_dict())
    optimizer.close()
