"""Compares what all launches recorded: equal keys must hold bitwise equal arrays.

A key is channel/kind/name. `kind` says what the result may depend on: "reduced" on nothing,
"partial-T" on the number of trainers only. So a result is compared over channels, owner counts and,
for "reduced", trainer counts.
"""

import pathlib
import sys

import numpy as np

LAUNCHES = {(owners, trainers) for owners in (1, 2, 4) for trainers in (1, 2, 3)}


def main() -> int:
    seen, origin, compared = {}, {}, 0
    launches = set()
    for path in sorted(pathlib.Path(sys.argv[1]).glob("sessions-*.npz")):
        launches.add(tuple(int(n) for n in path.stem.split("-")[1:]))
        for key, array in np.load(path).items():
            channel, name = key.split("/", 1)
            if name not in seen:
                seen[name], origin[name] = array, f"{path.stem} on {channel}"
            elif array.tobytes() == seen[name].tobytes() and array.dtype == seen[name].dtype:
                compared += 1
            else:
                print(f"{name}: {path.stem} on {channel} differs from {origin[name]}, by up to "
                      f"{np.max(np.abs(array.astype(float) - seen[name].astype(float)))}")
                return 1
    if launches != LAUNCHES:
        print(f"launches without results: {sorted(LAUNCHES - launches)}")
        return 1
    print(f"{compared} comparisons of {len(seen)} results over {len(launches)} launches: equal")
    return 0 if compared > len(seen) else 1


if __name__ == "__main__":
    sys.exit(main())
