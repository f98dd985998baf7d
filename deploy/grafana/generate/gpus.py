"""Dashboard: health, load, power, clocks and links of each GPU."""

from limits import limit, percent
from panels import ORANGE, RED, YELLOW, dashboard, row, stat, states, steps, table, timeseries
from queries import by, gpu, numbered, rate, variables

PER_GPU = "instance, gpu_uuid"
LEGEND = "{{instance}} {{gpu_uuid}}"
GPU_STATES = (("ok", "green"), ("no_permission", "yellow"), ("reset_required", "orange"), ("stalled", "orange"), ("lost", "red"))
# Only reasons that cost speed. An idle GPU also lowers its clocks.
SLOW = 'reason=~"sw_power_cap|hw_slowdown|sw_thermal_slowdown|hw_thermal_slowdown|hw_power_brake_slowdown"'


def each(name, labels="", operation="max", more=""):
    return by(PER_GPU + more, gpu(name, labels), operation)


def lines(title, description, unit, *parts, **options):
    """parts: (metric, word for the legend or nothing)."""
    return timeseries(title, description, unit, [(each(name), f"{LEGEND} {word}".rstrip()) for name, word in parts], **options)


def build():
    state, state_names = numbered("nv_gpu_state", PER_GPU, GPU_STATES, of=gpu)
    clocks = " + ".join(
        f"{number} * {each('nv_gpu_clocks_event_active', labels)}"
        for number, labels in (
            (1, 'reason="sw_power_cap"'),
            (2, 'reason=~"sw_thermal_slowdown|hw_thermal_slowdown"'),
            (4, 'reason="hw_power_brake_slowdown"'),
        )
    )
    clock_names = [
        (0, "full speed", "green"),
        (1, "power limit", "yellow"),
        (2, "heat", "red"),
        (3, "heat, power limit", "red"),
        (4, "power brake", "orange"),
        (5, "power brake, power limit", "orange"),
        (6, "heat, power brake", "red"),
        (7, "heat, power brake, power limit", "red"),
    ]
    errors = gpu("nv_gpu_ecc_errors_total", 'persistence="volatile"')
    uncorrected = gpu("nv_gpu_ecc_errors_total", 'error="uncorrected", persistence="volatile"')
    rows = [
        row(
            "Health",
            states(
                "GPU state",
                "ok: the driver can read the GPU. All other states need attention; no_permission is a setting of the exporter.",
                [(state, LEGEND)],
                state_names,
                12,
                9,
            ),
            states(
                "Clocks",
                "Why the clocks are below their maximum. The power limit is usual under full load; heat and power brake are not.",
                [(clocks, LEGEND)],
                clock_names,
                12,
                9,
            ),
            stat(
                "GPUs up",
                "GPUs that the driver can read, and all that were seen.",
                "none",
                [(f"sum({gpu('nv_gpu_up')})", "up"), (f"count({gpu('nv_gpu_up')})", "all")],
                4,
                4,
            ),
            stat(
                "Xid errors",
                "Xid errors since the exporters started. Each code means something else: look at the log of the kernel.",
                "none",
                [(f"sum({gpu('nv_gpu_xid_errors_total')}) or vector(0)", "errors")],
                4,
                4,
                steps((1, RED)),
            ),
            stat(
                "Uncorrected ECC errors",
                "Uncorrected errors of GPU memory since the driver was loaded.",
                "none",
                [(f"sum({uncorrected})", "errors")],
                4,
                4,
                steps((1, RED)),
            ),
            stat(
                "Row remappings",
                "Memory rows that were set aside. Failed: replace the GPU. Pending: reset it.",
                "none",
                [
                    (f"sum({gpu('nv_gpu_remapped_rows')})", "done"),
                    (f"sum({gpu('nv_gpu_remapped_rows_pending')})", "pending"),
                    (f"sum({gpu('nv_gpu_remapped_rows_failure')})", "failed"),
                ],
                6,
                4,
            ),
            stat(
                "Recovery action",
                "What the driver asks for, the highest of all GPUs: 0 nothing, 1 reset, 2 reboot, 3 drain peer-to-peer, 4 drain and reset.",
                "none",
                [(f"max({gpu('nv_gpu_recovery_action')})", "action")],
                6,
                4,
                steps((1, ORANGE)),
            ),
        ),
        row(
            "Load",
            lines(
                "Utilization",
                "Share of time in which a kernel ran. It does not say how much of the GPU the kernel used.",
                "percentunit",
                ("nv_gpu_utilization", ""),
                high=1,
            ),
            lines(
                "Activity of tensor cores",
                "Share of time in which any tensor pipe was active. High with long prompts and large batches.",
                "percentunit",
                ("nv_gpu_tensor_active_ratio", ""),
                high=1,
            ),
            lines(
                "Memory bandwidth in use",
                "Share of the bandwidth of GPU memory. High while generating: decoding is limited by it.",
                "percentunit",
                ("nv_gpu_dram_active_ratio", ""),
                high=1,
            ),
            timeseries(
                "Memory in use",
                f"Share of the GPU's memory. An engine takes most of it on purpose; a level that grows for hours is a fault.",
                "percentunit",
                [(f"{each('nv_gpu_memory_used_bytes')} / {each('nv_gpu_memory_total_bytes')}", LEGEND)],
                high=1,
            ),
            lines(
                "Activity of SMs",
                "Share of time in which an SM had work, averaged over all SMs.",
                "percentunit",
                ("nv_gpu_sm_active_ratio", ""),
                high=1,
            ),
            lines(
                "Processes",
                "Processes with a compute context on the GPU. More than expected: another program uses the GPU.",
                "short",
                ("nv_gpu_processes", ""),
            ),
        ),
        row(
            "Power and heat",
            timeseries(
                "Power",
                "Power of each GPU, and the highest limit in force.",
                "watt",
                [(each("nv_gpu_power_usage"), LEGEND), (f"max({gpu('nv_gpu_power_limit')})", "limit")],
            ),
            timeseries(
                "Temperature",
                "The GPU slows down at its own limit, often near 87 to 92 degrees.",
                "celsius",
                [(each("nv_gpu_temperature_celsius", 'sensor="gpu"'), LEGEND)],
                thresholds=steps((80, YELLOW), (87, RED)),
                low=None,
            ),
            timeseries(
                "Memory temperature",
                "Temperature of GPU memory. Its limit is often 95 degrees.",
                "celsius",
                [(each("nv_gpu_temperature_celsius", 'sensor="memory"'), LEGEND)],
                thresholds=steps((85, YELLOW), (95, RED)),
                low=None,
            ),
            timeseries(
                "SM clock",
                "Clock frequency of the SMs. An idle GPU lowers it.",
                "hertz",
                [(each("nv_gpu_clock_hertz", 'type="sm"'), LEGEND)],
            ),
            timeseries(
                "Time with reduced clocks",
                "Share of the samples in which a reason that costs speed was active. The panel Clocks names the reason.",
                "percentunit",
                [(by(PER_GPU, f"avg_over_time({gpu('nv_gpu_clocks_event_active', SLOW)}[$__rate_interval])", "max"), LEGEND)],
                thresholds=steps((limit("TrtllmGpuThrottled"), ORANGE)),
                high=1,
            ),
            timeseries(
                "Energy",
                "Power computed from the GPU's energy counter: a mean that misses no peak.",
                "watt",
                [(by(PER_GPU, rate(gpu("nv_energy_consumption")), "max"), LEGEND)],
            ),
        ),
        row(
            "Links",
            lines(
                "PCIe",
                "Bytes per second over PCIe, as the GPU sees them.",
                "Bps",
                ("nv_gpu_pcie_receive_bytes_per_second", "received"),
                ("nv_gpu_pcie_transmit_bytes_per_second", "sent"),
            ),
            lines(
                "NVLink",
                "Payload bytes per second over all NVLinks. Tensor parallelism uses them.",
                "Bps",
                ("nv_gpu_nvlink_receive_bytes_per_second", "received"),
                ("nv_gpu_nvlink_transmit_bytes_per_second", "sent"),
            ),
            timeseries(
                "Active NVLinks",
                "Fewer than before means that a link went down.",
                "short",
                [(each("nv_gpu_nvlink_up", operation="sum"), LEGEND)],
            ),
            timeseries(
                "ECC errors",
                "Errors of GPU memory since the driver was loaded. Corrected ones are harmless in small numbers.",
                "short",
                [(by(PER_GPU + ", error", errors), LEGEND + " {{error}}")],
            ),
            timeseries(
                "NVLink errors per second",
                "Errors of all links by kind. A steady rate points to a bad link.",
                "cps",
                [(by(PER_GPU + ", kind", rate(gpu("nv_gpu_nvlink_errors_total"))), LEGEND + " {{kind}}")],
            ),
            timeseries(
                "PCIe replays per second",
                "Packets that were sent again. A steady rate points to a bad slot or riser.",
                "cps",
                [(by(PER_GPU, rate(gpu("nv_gpu_pcie_replays_total"))), LEGEND)],
            ),
        ),
        row(
            "Inventory",
            table(
                "GPUs",
                "Name, index, PCI address, serial number and driver of each GPU.",
                (gpu("nv_gpu_info"), LEGEND),
                {
                    "instance": "Instance",
                    "index": "Index",
                    "name": "Name",
                    "gpu_uuid": "UUID",
                    "pci_bus_id": "PCI address",
                    "serial": "Serial number",
                    "driver_version": "Driver",
                    "vbios_version": "VBIOS",
                },
                24,
                9,
            ),
        ),
    ]
    return dashboard(
        "trtllm-gpu",
        "TensorRT-LLM GPU",
        "Health, load, power, clocks and links of each GPU.",
        variables("job", "namespace", "pod", "instance", "gpu"),
        rows,
    )
