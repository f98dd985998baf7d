"""Dashboard of the GPUs: health, load, power, clocks and links. It has a table of all GPUs, the worst first, and
graphs of the ten highest only."""

from limits import limit
from panels import BLUE, GREEN, ORANGE, RED, TEXT, Column, by_label, lines, needs_full, numbers, page, rows, steps
from queries import GPU, alerts, by, gpu, label, numbered, rate, top, variables

PER_GPU = "node, instance, gpu_uuid"
LEGEND = "{{node}} {{instance}} GPU {{index}}"
# Names with a space are not values of nv_gpu_state: other series show these conditions.
STATES = [(1, "ok", GREEN), (2, "no_permission", BLUE), (3, "slowed down", ORANGE), (4, "has errors", ORANGE), (5, "reset_required", ORANGE), (6, "stalled", RED), (7, "lost", RED)]
# Only reasons that reduce speed. An idle GPU also lowers its clocks, and reaching the power limit is normal under full
# load.
SLOW = 'reason=~"hw_slowdown|sw_thermal_slowdown|hw_thermal_slowdown|hw_power_brake_slowdown"'
RECOVERY = [(0, "none", GREEN), (1, "reset", ORANGE), (2, "reboot", ORANGE), (3, "drain peers", ORANGE), (4, "drain, reset", ORANGE)]


def indexed(expression):
    """Adds the index of the GPU on its node, because people know the index and not the UUID."""
    info = by("instance, gpu_uuid, index", gpu("nv_gpu_info"), "max")
    return f"({expression}) * on (instance, gpu_uuid) group_left (index) {info}"


def each(name, labels="", operation="max", more=""):
    return indexed(by(PER_GPU + more, gpu(name, labels), operation))


def line(title, text, unit, *queries, lowest=False, **how):
    """Lines of the ten highest or lowest series of each query. A query is (expression, word for the legend)."""
    found = [(top(expression, "bottomk" if lowest else "topk"), f"{LEGEND} {word}".rstrip()) for expression, word in queries]
    return lines(title, f"{text} The ten {'lowest' if lowest else 'highest'}.", unit, found, many=True, links=[by_label("This GPU", "trtllm-gpu", "instance", "gpu_uuid")], **how)


def mig(name, total=None):
    more = ", gpu_uuid, mig_uuid"
    info = by("instance, mig_uuid, gpu_instance_id, mig_profile", gpu("nv_gpu_mig_info"), "max")
    value = by(f"node, instance{more}", gpu(f"nv_gpu_mig_{name}"), "max")
    whole = f" / {by(f'node, instance{more}', gpu(f'nv_gpu_mig_{total}'), 'max')}" if total else ""
    return indexed(f"({value}{whole}) * on (instance, mig_uuid) group_left (gpu_instance_id, mig_profile) {info}")


def build():
    uncorrected = 'error="uncorrected", persistence="volatile"'
    slowed = indexed(by(PER_GPU, f"avg_over_time({gpu('nv_gpu_clocks_event_active', SLOW)}[$__rate_interval])", "max"))
    memory = indexed(" / ".join(by(PER_GPU, gpu(f"nv_gpu_memory_{kind}_bytes"), "max") for kind in ("used", "total")))
    errors = [f"4 * ({series} > bool 0)" for series in (gpu("nv_gpu_xid_errors_total"), gpu("nv_gpu_ecc_errors_total", uncorrected))]
    trouble = numbered("nv_gpu_state", PER_GPU, STATES, gpu, (f"3 * {gpu('nv_gpu_clocks_event_active', SLOW)}", *errors))

    def total(expression, word, shade, base=GREEN):
        return (f"sum({expression})", word), {word: steps((1, shade), base=base)}

    counts = [
        total(f"{gpu('nv_gpu_up')} == bool 0", "not up", RED),
        total(f"{gpu('nv_gpu_xid_errors_total')} or 0 * {gpu('nv_gpu_up')}", "Xid errors", ORANGE),  # no series before the first error
        total(gpu("nv_gpu_ecc_errors_total", uncorrected), "uncorrected ECC", RED),
        total(gpu("nv_gpu_remapped_rows_pending"), "remaps pending", ORANGE),
        total(gpu("nv_gpu_remapped_rows_failure"), "remaps failed", RED),
        total(f"max by ({PER_GPU}) ({gpu('nv_gpu_clocks_event_active', SLOW)})", "slowed down", ORANGE),
    ]
    content = {
        "Which GPU is in trouble?": [
            numbers(
                "GPUs in trouble",
                "GPUs that the driver cannot read; Xid errors since the exporters started; uncorrected memory errors since the driver was loaded; memory rows to set aside "
                "(pending: reset the GPU, failed: replace it); GPUs that heat or the power brake slows down.",
                "none",
                [query for query, _ in counts],
                20,
                {word: shade for _, one in counts for word, shade in one.items()},
            ),
            numbers("GPUs", "All GPUs that were seen.", "none", [(f"count({gpu('nv_gpu_up')})", "all")], 4, steps(base=TEXT)),
            rows(
                "GPUs, the worst first",
                "State, what the driver asks for, and errors of each GPU. Pod: the one that uses the GPU (--gpu.pod-resources).",
                [Column("Node", "node"), Column("Instance", "instance"), Column("GPU", "index")],
                [
                    Column("State", indexed(trouble), names=STATES),
                    Column("Do", each("nv_gpu_recovery_action"), names=RECOVERY),
                    Column("Slowed down", slowed, "percentunit", steps((0.01, ORANGE))),
                    Column("Xid", each("nv_gpu_xid_errors_total", operation="sum"), "none", steps((1, ORANGE))),
                    Column("ECC", each("nv_gpu_ecc_errors_total", uncorrected, "sum"), "none", steps((1, RED))),
                    Column("Busy", each("nv_gpu_utilization"), "percentunit"),
                    Column("Memory", memory, "percentunit"),
                    Column("Power", each("nv_gpu_power_usage"), "watt"),
                    Column("Temperature", each("nv_gpu_temperature_celsius", 'sensor="gpu"'), "celsius"),
                    Column("NVLinks", f"{each('nv_gpu_nvlinks_up')} or {each('nv_gpu_nvlink_up', operation='sum')}"),
                    Column("Pod", indexed(by(PER_GPU + ", pod", gpu("nv_gpu_pod_info"), "max")), label="pod"),
                ],
                10,
                "State",
            ),
        ],
        "Load": [
            line("Utilization", "Share of time in which a kernel ran. It does not say how much of the GPU the kernel used.", "percentunit", (each("nv_gpu_utilization"), ""), width=6, high=1),
            line("Activity of tensor cores", "Share of time in which any tensor pipe was active. High with long prompts and large batches.", "percentunit", (each("nv_gpu_tensor_active_ratio"), ""), width=6, high=1),
            line("Memory bandwidth in use", "Share of the bandwidth of GPU memory. High while generating: decoding is limited by it.", "percentunit", (each("nv_gpu_dram_active_ratio"), ""), width=6, high=1),
            line("Memory in use", "Share of the GPU's memory. An engine takes most of it on purpose; a level that grows for hours is a fault.", "percentunit", (memory, ""), width=6, high=1),
        ],
        "Power and heat": [
            line("Power", "Mean power from the energy counter, which misses no peak.", "watt", (indexed(by(PER_GPU, rate(gpu("nv_energy_consumption")), "max")), "")),
            line("Temperature", "The GPU slows down at its own limit, often near 87 to 92 degrees.", "celsius", (each("nv_gpu_temperature_celsius", 'sensor="gpu"'), ""), limits=steps((87, ORANGE))),
            line("Memory temperature", "Temperature of GPU memory. Its limit is often 95 degrees.", "celsius", (each("nv_gpu_temperature_celsius", 'sensor="memory"'), ""), limits=steps((95, ORANGE))),
            line("Time with reduced clocks", "Share of the samples in which heat or the power brake lowered the clocks.", "percentunit", (slowed, ""), high=1, limits=steps((limit("TrtllmGpuThrottled"), ORANGE))),
            line("Power limit in force", "Share of the samples at the power limit. Usual under full load.", "percentunit", (indexed(by(PER_GPU, f"avg_over_time({gpu('nv_gpu_clocks_event_active', label('reason', 'sw_power_cap'))}[$__rate_interval])", "max")), ""), high=1),
            line("ECC errors", "Errors of GPU memory since the driver was loaded. Corrected ones are harmless in small numbers.", "none", (each("nv_gpu_ecc_errors_total", 'persistence="volatile"', "sum", ", error"), "{{error}}")),
        ],
        needs_full("Activity, clocks and links"): [
            line("Activity of SMs", "Share of time in which an SM had work, averaged over all SMs.", "percentunit", (each("nv_gpu_sm_active_ratio"), ""), high=1),
            line("Processes", "Processes with a compute context on the GPU. More than expected: another program uses the GPU.", "none", (each("nv_gpu_processes"), "")),
            line("SM clock", "Clock frequency of the SMs. An idle GPU lowers it.", "hertz", (each("nv_gpu_clock_hertz", 'type="sm"'), ""), lowest=True),
            line("PCIe", "Bytes per second over PCIe, as the GPU sees them.", "Bps", *((each(f"nv_gpu_pcie_{way}_bytes_per_second"), word) for way, word in (("receive", "received"), ("transmit", "sent")))),
            line("NVLink", "Payload bytes per second over all NVLinks. Tensor parallelism uses them.", "Bps", *((each(f"nv_gpu_nvlink_{way}_bytes_per_second"), word) for way, word in (("receive", "received"), ("transmit", "sent")))),
            line("NVLink errors per second", "Errors of all links by kind. A steady rate points to a bad link.", "none", (indexed(by(PER_GPU + ", kind", rate(gpu("nv_gpu_nvlink_errors_total")))), "{{kind}}")),
            line("PCIe replays per second", "Packets that were sent again. A steady rate points to a bad slot or riser.", "none", (indexed(by(PER_GPU, rate(gpu("nv_gpu_pcie_replays_total")))), "")),
            line("Row remappings", "Memory rows that were set aside.", "none", (each("nv_gpu_remapped_rows", operation="sum"), "")),
        ],
        "+MIG instances (needs GPUs with MIG)": [
            rows(
                "MIG",
                "The MIG instances of each GPU. Empty without MIG. A GPU with MIG has no utilization of its own.",
                [Column("Node", "node"), Column("Instance", "instance"), Column("GPU", "index"), Column("MIG", "gpu_instance_id"), Column("Profile", "mig_profile")],
                [Column("Memory", mig("memory_used_bytes", "memory_total_bytes"), "percentunit"), Column("SMs active", mig("sm_active_ratio"), "percentunit"), Column("Tensor cores", mig("tensor_active_ratio"), "percentunit"), Column("Bandwidth", mig("dram_active_ratio"), "percentunit")],
                8,
                "Memory",
            ),
        ],
        "+Inventory": [
            rows(
                "Descriptions",
                "Name, index, PCI address, serial number and driver of each GPU.",
                [
                    Column(word, label)
                    for label, word in (
                        ("instance", "Instance"), ("index", "GPU"), ("name", "Name"), ("gpu_uuid", "UUID"), ("pci_bus_id", "PCI address"), ("serial", "Serial number"), ("driver_version", "Driver"), ("vbios_version", "VBIOS"),
                    )
                ],
                [Column("", by("instance, index, name, gpu_uuid, pci_bus_id, serial, driver_version, vbios_version", gpu("nv_gpu_info"), "max"))],
                9,
            ),
        ],
    }
    return page(
        "trtllm-gpu",
        "TensorRT-LLM GPU",
        "Which GPU is in trouble? Health, load, power, clocks and links.",
        variables("cluster", "job", "namespace", "pod", "node", "gpu"),
        alerts(GPU),
        content,
    )
