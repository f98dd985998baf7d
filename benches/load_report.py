"""Prints the medians of a run of load.sh. Each input line: connections, encoding, round, server, h2load's log, CPU ticks.

    usage: benches/load_report.py REQUESTS TICKS_PER_SECOND <results
"""
import collections
import statistics
import sys

# Ratios of exporter to constant server, with their limits. A single p99 has little meaning on a shared machine, so it
# has no limit.
AT_MOST = {"p50": 1.25, "CPU": 1.3}
AT_LEAST = {"throughput": 0.85}
COLUMNS = ["throughput", "p50", "p99", "CPU"]


def measured(log, requests, cpu_seconds):
    """Throughput in 1/s, latencies and CPU time per request in microseconds."""
    with open(log) as file:
        rows = [tuple(map(int, line.split("\t")[:3])) for line in file]
    failed = requests - sum(status == 200 for _, status, _ in rows)
    if failed:
        sys.exit(f"load.sh: {failed} of {requests} requests failed: {log}")
    latencies = sorted(latency for _, _, latency in rows)
    seconds = (max(start + latency for start, _, latency in rows) - min(start for start, _, _ in rows)) / 1e6
    return {
        "throughput": requests / seconds,
        "p50": latencies[len(latencies) // 2],
        "p99": latencies[len(latencies) * 99 // 100],
        "CPU": cpu_seconds / requests * 1e6,
    }


def main():
    requests, ticks_per_second = int(sys.argv[1]), int(sys.argv[2])
    rounds = collections.defaultdict(dict)
    for line in sys.stdin:
        connections, encoding, number, server, log, ticks = line.split()
        rounds[connections, encoding, number][server] = measured(log, requests, int(ticks) / ticks_per_second)
    groups = collections.defaultdict(list)
    for (connections, encoding, _), servers in rounds.items():
        groups[connections, encoding].append(servers)

    missed = False
    print(f"{'connections':>11} {'encoding':9}" + "".join(f"{column:>12}" for column in COLUMNS) + "   (exporter ÷ constant)")
    for (connections, encoding), pairs in groups.items():
        ratios = {
            column: statistics.median(pair["exporter"][column] / (pair["constant"][column] or float("nan")) for pair in pairs)
            for column in COLUMNS
        }
        outside = [column for column, most in AT_MOST.items() if not ratios[column] <= most]
        outside += [column for column, least in AT_LEAST.items() if not ratios[column] >= least]
        missed |= bool(outside)
        row = "".join(f"{ratios[column]:11.2f}x" for column in COLUMNS)
        print(f"{connections:>11} {encoding:9}{row}" + (f"   misses its target: {', '.join(outside)}" if outside else ""))
        for server in ("constant", "exporter"):
            values = {column: statistics.median(pair[server][column] for pair in pairs) for column in COLUMNS}
            print(
                f"{'':11} {server:9}{values['throughput']:10.0f}/s{values['p50']:10.0f}us{values['p99']:10.0f}us{values['CPU']:10.1f}us"
            )
    sys.exit(missed)


main()
