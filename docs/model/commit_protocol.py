#!/usr/bin/env python3
"""Exhaustive check of the commit protocol (design.md, section 5) on small instances.

Every interleaving of WRITERS racing writers, each with BATCHES batches, and one reclaimer is explored, one file
operation at a time. A writer may sleep for any time between two operations. With --stale, a directory that was
resolved once may be used again by its handle after it was renamed away or replaced (NFS).

Properties: an acknowledged batch is in the log; no batch is in the log twice. The engine itself is held to them in
every schedule of small cases (sim/src/cases).

  commit_protocol.py --check marks          the protocol: passes
  commit_protocol.py --check none           acknowledges when link succeeds: a lost commit is found
  commit_protocol.py --check reread         acknowledges when its own file is found again: a lost commit is found

Exit status: 0 holds, 1 a violation (its trace is printed), 2 the bound on states was reached.
"""
import argparse
import sys
from collections import deque


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", choices=["marks", "reread", "none"], default="marks")
    parser.add_argument("--segment", type=int, default=1, help="versions in a segment")
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--batches", type=int, default=3, help="batches of each writer")
    parser.add_argument("--versions", type=int, default=5, help="no version beyond this one is won")
    parser.add_argument("--stale", action="store_true")
    parser.add_argument("--states", type=int, default=5_000_000)
    return parser.parse_args()


# A state is (directories, names, log, marks, writers):
#   directories  every segment directory ever made: (segment, {(version, batch)}, is it the first of its name?)
#   names        ((segment, index into directories), ...): what a path resolves to now
#   log          the batches in version order, the truth that readers see
#   marks        the segment marks that exist
#   writers      (next operation, head it knows, own sequence, acknowledged batches, remembered directory handles)
def initial(options):
    writer = ("catch_up", -1, 0, (), ())
    return (((0, frozenset(), True),), ((0, 0),), (), frozenset([0]), (writer,) * options.writers)


def successors(state, options):
    directories, names, log, marks, writers = state
    resolve = dict(names)
    newest = max(marks)
    found = []

    for who, (operation, head, sequence, acked, handles) in enumerate(writers):
        batch = (who, sequence)
        version = head + 1
        segment = version // options.segment

        def step(writer, directories=directories, names=names, log=log, marks=marks, who=who):
            moved = list(writers)
            moved[who] = writer
            found.append((directories, names, log, marks, tuple(moved)))

        retry = ("catch_up", -1, sequence, acked, handles)
        acknowledged = ("catch_up", -1, sequence + 1, acked + (batch,), handles)
        if operation == "catch_up":
            if sequence < options.batches and len(log) < options.versions:
                # Replay decides: a batch that is in the log already is acknowledged, never sent twice.
                step(acknowledged if batch in log else ("prepare", len(log) - 1, sequence, acked, handles))
        elif operation == "prepare":
            if version % options.segment:
                step(("link", head, sequence, acked, handles))
            elif segment in resolve:
                step(("mark", head, sequence, acked, handles))
            else:
                first_of_its_name = all(made != segment for made, _, _ in directories)
                step(("mark", head, sequence, acked, handles),
                     directories=directories + ((segment, frozenset(), first_of_its_name),),
                     names=tuple(sorted({**resolve, segment: len(directories)}.items())))
        elif operation == "mark":
            step(("link", head, sequence, acked, handles), marks=marks | {segment})
        elif operation == "link":
            targets = {resolve[segment]} if segment in resolve else set()
            if options.stale and segment in dict(handles):
                targets.add(dict(handles)[segment])
            if not targets:
                step(retry)  # ENOENT
            for target in targets:
                name, entries, first = directories[target]
                kept = tuple(sorted({**dict(handles), segment: target}.items())) if options.stale else ()
                if any(taken == version for taken, _ in entries):
                    step(("catch_up", -1, sequence, acked, kept))  # EEXIST
                    continue
                changed = list(directories)
                changed[target] = (name, entries | {(version, batch)}, first)
                extended = log + (batch,) if first and version == len(log) else log
                step(("verdict", head, sequence, acked, kept), directories=tuple(changed), log=extended)
        elif operation == "verdict":
            if options.check == "marks":
                stands = newest <= segment + 1
            elif options.check == "reread":
                stands = segment in resolve and (version, batch) in directories[resolve[segment]][1]
            else:
                stands = True
            step(acknowledged if stands else retry)

    for segment, directory in names:  # reclaim: every step of a complete segment may be dead at any time
        if segment <= newest - 2 and len(log) >= (segment + 1) * options.segment:
            changed = list(directories)
            changed[directory] = (segment, frozenset(), directories[directory][2])
            left = tuple(entry for entry in names if entry[0] != segment)
            found.append((tuple(changed), left, log, marks, writers))
    for mark in marks - {newest}:
        found.append((directories, names, log, marks - {mark}, writers))
    return found


def violation(state):
    _, _, log, _, writers = state
    if len(set(log)) != len(log):
        return "a batch is in the log twice"
    for _, _, _, acked, _ in writers:
        for batch in acked:
            if batch not in log:
                return f"batch {batch} (writer, sequence) was acknowledged and is not in the log"
    return None


def main():
    options = arguments()
    start = initial(options)
    parent = {start: None}
    queue = deque([start])
    explored = 0
    while queue:
        state = queue.popleft()
        explored += 1
        broken = violation(state)
        if broken:
            trace = []
            while state is not None:
                trace.append(state)
                state = parent[state]
            for _, names, log, marks, writers in reversed(trace):
                print("writers", [w[:4] for w in writers], "names", names, "log", log, "marks", sorted(marks))
            print(f"VIOLATION after {explored} states: {broken}")
            return 1
        if explored >= options.states:
            print(f"bound reached: {explored} states, no violation so far")
            return 2
        for after in successors(state, options):
            if after not in parent:
                parent[after] = state
                queue.append(after)
    print(f"holds in all {explored} states")
    return 0


if __name__ == "__main__":
    sys.exit(main())
