"""Entry point: parses options, runs the parts, lists missed budgets. Started by bench/run."""

import argparse
import os
import random
import signal
import sys

sys.dont_write_bytecode = True

import harness
import part_addresses
import part_cache
import part_cache_tests
import part_churn
import part_connections
import part_content
import part_edge
import part_fleet
import part_h2
import part_instructions
import part_load
import part_memory
import part_overload
import part_proxy
import part_reload
import part_replay
import part_serve
import part_soak
import part_tls
import part_user_tcp
import part_user_tcp_connections
import part_traces
import part_validity
import peers

PARTS = {"load": part_load, "serve": part_serve, "connections": part_connections,
         "memory": part_memory, "proxy": part_proxy, "tls": part_tls, "h2": part_h2,
         "overload": part_overload, "user-tcp": part_user_tcp}
# These parts take long and compare no peers, so they run only if they are named.
FAULTS = {"reload": part_reload, "churn": part_churn, "soak": part_soak, "edge": part_edge, "replay": part_replay,
          "fleet": part_fleet, "cache": part_cache, "cache-tests": part_cache_tests,
          "content": part_content, "addresses": part_addresses,
          "user-tcp-connections": part_user_tcp_connections, "instructions": part_instructions,
          "validity": part_validity, "traces": part_traces}


def options():
    parser = argparse.ArgumentParser(
        prog="bench/run", description="Measures weir against its peers, side by side.",
        epilog="Exit code: 0 all budgets met, 3 one was missed, 1 could not measure.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; none: all of these; or {', '.join(FAULTS)}, strictness")
    parser.add_argument("--quick", action="store_true", help="3 rounds of 1 s, other parts once")
    parser.add_argument("--rounds", type=int, help="rounds of load, serve, proxy, tls and h2 [9]")
    parser.add_argument("--seconds", type=int, help="length of a run in them, and of each in reload [3]")
    parser.add_argument("--minutes", type=float, default=10, help="churn and soak: how long [10]")
    parser.add_argument("--times", type=int, help="how often connections and memory, also of proxy, tls and h2, edge, replay and addresses are done [3]")
    parser.add_argument("--seed", type=int, help="of the order of runs [random, printed]")
    parser.add_argument("--wait", type=float, default=120,
                        help="seconds to wait in all for a quiet machine [120]")
    parser.add_argument("--foreign-max", type=float, default=0.25, metavar="CPUS",
                        help="processors that others may use in a quiet round [0.25]")
    parser.add_argument("--connections", type=_numbers, default=[10, 100, 1000],
                        help="load: connections [10,100,1000]")
    parser.add_argument("--servers", type=_names("nginx", "weir", "responder"),
                        default=["nginx", "weir"],
                        help="load: what is driven: nginx, weir, responder [nginx,weir]")
    parser.add_argument("--tools", type=_names(*peers.LOADS), default=list(peers.LOADS),
                        help="load: the generators [weir,wrk,ab,h2load]")
    parser.add_argument("--driver", choices=peers.LOADS, default="wrk", help="serve: driven by [wrk]")
    parser.add_argument("--subjects", choices=part_validity.SUBJECTS, default="first",
                        help="validity: which set of servers; the second and the third played no part when its rules were made")
    parser.add_argument("--before", metavar="PROGRAM",
                        help="serve, load, proxy, tls, h2, user-tcp, instructions: another build of weir, measured beside this one")
    parser.add_argument("--scenes", type=_names(*part_instructions.NAMES), default=list(part_instructions.SCENES),
                        help=f"instructions: {', '.join(part_instructions.NAMES)} (only the bytes) [all scenes]")
    parser.add_argument("--write", metavar="REASON", help="instructions: write the figures that are missed to the file, with the reason")
    parser.add_argument("--cases", type=_names(*part_proxy.NAMES), default=list(part_proxy.NAMES),
                        help=f"proxy: the comparisons [{','.join(part_proxy.NAMES)}]")
    for name, part in (("tls", part_tls), ("h2", part_h2), ("content", part_content), ("cache", part_cache), ("user-tcp", part_user_tcp)):
        parser.add_argument(f"--{name}-cases", type=_names(*part.NAMES), default=list(part.NAMES),
                            help=f"{name}: the comparisons [{','.join(part.NAMES)}]")
    chosen = parser.parse_args()
    unknown = [part for part in chosen.parts if part not in PARTS | FAULTS]
    if unknown:
        parser.error(f"no part: {', '.join(unknown)}; there are {', '.join(PARTS | FAULTS)}")
    if "instructions" in chosen.parts and len(chosen.parts) > 1:
        parser.error("instructions measures another binary than the other parts: run it alone")
    chosen.rounds = chosen.rounds or (3 if chosen.quick else 9)
    chosen.seconds = chosen.seconds or (1 if chosen.quick else 3)
    chosen.times = chosen.times or (1 if chosen.quick else 3)
    if chosen.seed is None:
        chosen.seed = random.SystemRandom().randrange(1_000_000)
    return chosen


def _numbers(text):
    return [int(number) for number in text.split(",")]


def _names(*known):
    def names(text):
        unknown = [name for name in text.split(",") if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}; there are {', '.join(known)}")
        return text.split(",")

    return names


def main():
    chosen = options()
    # Lets SIGTERM run the clean-up handlers, like Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    bench = harness.Bench(chosen)
    bench.descriptors = harness.raise_limits()
    # Keeps the benchmark itself off the subject's CPU.
    if others := os.sched_getaffinity(0) - {harness.SUBJECT_CPU}:
        os.sched_setaffinity(0, others)
    print(f"seed {chosen.seed}, {chosen.rounds} rounds of {chosen.seconds} s, "
          f"{os.cpu_count()} processors: subject on {harness.SUBJECT_CPU}, "
          f"other side on {harness.OTHER_CPU}")
    try:
        for name in chosen.parts or PARTS:
            (PARTS | FAULTS)[name].measure(bench)
    except harness.Failed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        bench.close()
    if bench.repeated:
        print(f"\n{len(bench.repeated)} blocks were repeated, because a program failed in them")
    print("\n" + ("\n".join(["missed:"] + [f"  {text}" for text in bench.missed])
                  if bench.missed else "all budgets met"))
    return 3 if bench.missed else 0


if __name__ == "__main__":
    sys.exit(main())
