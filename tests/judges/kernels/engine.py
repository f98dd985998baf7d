"""A PyTorch engine of TensorRT-LLM in virtual time: its scheduler, and its loop with and without overlap.

The names in parentheses are those of py_executor.py and scheduler.py in TensorRT-LLM. All times are in seconds.
"""

import dataclasses
import random

BLOCK = 32  # tokens of a block of the KV cache
# What the host needs for a pass: to form and start a batch (for each request, and for a batch with prompts), and to handle it.
PREPARE, PREPARE_REQUEST, PREPARE_EAGER = 1.5e-3, 6e-6, 1.5e-3
HANDLE, HANDLE_REQUEST = 0.25e-3, 4e-6
EMPTY_PASS = 0.2e-3
SAMPLE = 0.5e-3  # sampling and the copy of the tokens, on the GPU after the forward pass
NOISE = 0.01  # relative standard deviation of a batch's time on the GPU


@dataclasses.dataclass(frozen=True)
class Settings:
    max_batch_size: int = 128
    max_num_tokens: int = 8192
    chunked: bool = True
    policy: str = "GUARANTEED_NO_EVICT"
    blocks: int = 12000
    host: float = 0.0  # seconds of the host in each pass, beside the usual ones
    slow_at: float = float("inf")  # from then on, the GPU needs `slower` times as long
    slower: float = 1.9


class Request:
    """A request and where it stands. `planned` tokens are scheduled, of which the engine has handled `handled`."""

    __slots__ = ("id", "arrival", "prompt", "output", "stops", "limit", "target", "context", "planned", "handled", "blocks")
    __slots__ += ("first_scheduled", "first_token", "last_token", "first_iter", "last_iter", "peak")

    def __init__(self, number, arrival, prompt, output, stops):
        self.id, self.arrival, self.prompt, self.output, self.stops = number, arrival, prompt, output, stops
        # A client does not know how long an answer will be that ends by a stop word, and allows for more.
        self.limit = output + output // 2 if stops else output
        self.target, self.context, self.planned, self.handled, self.blocks, self.peak = prompt, 0, 0, 0, 0, 0
        self.first_scheduled = self.first_token = self.last_token = self.first_iter = self.last_iter = None

    def again(self, number, arrival):
        return Request(number, arrival, self.prompt, self.output, self.stops)

    def reserved(self):
        return -(-(self.prompt + self.limit) // BLOCK)


@dataclasses.dataclass(slots=True)
class Batch:
    """A batch, and all that its record tells. `took`: the true time. `due`: when the record is written."""

    number: int
    begin: float
    stamp: float
    active: int
    new: int
    waited: float
    chunks: list
    decoding: list
    kv_tokens: int
    paused: int
    after_idle: bool
    first: list = dataclasses.field(default_factory=list)  # requests whose prompt ends in this batch
    context_kv: int = 0
    end: float = 0.0
    forward: float = 0.0
    took: float = 0.0
    due: float = 0.0
    handled_in: int = 0
    queued: int = 0
    completed: int = 0
    used: int = 0
    allocated: int = 0
    host_step: float = 0.0
    device_step: float = 0.0
    memory: float = 0.0

    @property
    def context_tokens(self):
        return sum(new for _, new in self.chunks)


class Engine:
    """Runs requests, which are in the order of their arrival. `batches` and `finished` are in the order of handling."""

    def __init__(self, iterations, settings, requests, overlap=True, seed=0):
        self.iterations, self.settings, self.requests, self.overlap = iterations, settings, requests, overlap
        self.rand = random.Random(seed)
        self.arrived = 0  # requests that have arrived
        self.waiting = []  # waiting_queue, from `seated` on
        self.seated = 0
        self.active, self.batches, self.finished, self.steps = [], [], [], []
        self.used = self.allocated = 0
        self.waited = 0.0
        self.now = self.gpu_free = 0.0

    def run(self, until):
        """`_executor_loop_overlap` or `_executor_loop`, until no more requests arrive or the time is over."""
        number, pending, last_event, spans, before_was_empty = 0, None, 0.0, {}, True
        hosts, begin = {}, 0.0
        while self.now < until:
            number += 1
            # profile_step (`_profiler`): the host step ends here; its event on the GPU comes after all earlier work.
            hosts[number - 1], begin = (self.now - begin if number > 1 else 0.0), self.now
            event = max(self.now, self.gpu_free)
            spans[number - 1], last_event = event - last_event, event
            # `_fetch_and_activate_new_requests`: waits if nothing is active.
            self.receive(self.now)
            if not self.active and self.seated == len(self.waiting):
                if self.arrived == len(self.requests):
                    break
                self.now = max(self.now, self.requests[self.arrived].arrival)
                self.receive(self.now)
                before_was_empty = True
            batch = self.activate(number, begin, before_was_empty)
            # `_schedule`: assumes that the tokens in flight exist.
            runs = self.schedule(batch)
            if runs:
                self.launch(batch)
            else:
                self.now += EMPTY_PASS
            before_was_empty = not runs
            if self.overlap:
                # `_process_previous_batch`: the tokens of the batch before, and its record (`_process_iter_stats`).
                if pending:
                    self.handle(pending, number)
                    pending.host_step, pending.device_step = hosts[pending.number], spans.get(pending.number - 1, 0.0)
                pending = batch if runs else None
            elif runs:
                self.handle(batch, number)
                batch.host_step, batch.device_step = hosts[number - 1], spans.get(number - 2, 0.0)
            if number > 4:
                hosts.pop(number - 4, None), spans.pop(number - 4, None)
        return self

    def receive(self, now):
        """Moves the whole request queue to the waiting queue (`get_from_request_queue`)."""
        while self.arrived < len(self.requests) and self.requests[self.arrived].arrival <= now:
            self.waiting.append(self.requests[self.arrived])
            self.arrived += 1

    def activate(self, number, begin, after_idle):
        """Gives seats (`_pop_from_waiting_queue`) and notes what a record has from the begin of its pass."""
        seats = self.settings.max_batch_size - len(self.active)
        new = self.waiting[self.seated : self.seated + max(seats, 0)]
        self.seated += len(new)
        for request in new:
            self.waited += self.now - request.arrival
            request.first_scheduled = self.now
        self.active += new
        return Batch(number, begin, self.now, len(self.active), len(new), self.waited, [], [], 0, 0, after_idle)

    def schedule(self, batch):
        """Fills the batch: first the capacity of the KV cache, then the limits of the batch. True if there is work."""
        settings, running, contexts = self.settings, [], []
        for request in self.active:
            if request.context < request.target:
                contexts.append(request)
            elif request.stops or request.planned < request.output:  # else GENERATION_TO_COMPLETE
                running.append(request)
        if settings.policy == "MAX_UTILIZATION":
            contexts = self.max_utilization(batch, running, contexts)
        else:
            contexts = self.no_evict(contexts)
        batch.decoding = running[: settings.max_num_tokens]
        room = settings.max_num_tokens - len(batch.decoding)
        for request in batch.decoding:
            batch.kv_tokens += request.prompt + request.planned
        for request in contexts:
            size = request.target - request.context
            if size > room:
                size = room // BLOCK * BLOCK if settings.chunked else 0
            if size <= 0:
                break
            room -= size
            batch.chunks.append((request.context, size))
            batch.context_kv += request.context
            request.context += size
            self.grow(request, request.target if request.blocks == 0 else request.context)
            if request.context == request.target:
                request.planned += 1
                batch.first.append(request)
        for request in batch.decoding:
            request.planned += 1
            self.grow(request, request.prompt + request.planned)
        return bool(batch.decoding or batch.chunks)

    def no_evict(self, contexts):
        """GuaranteedNoEvictScheduler: a prompt starts only if its whole answer has room, too."""
        free = self.settings.blocks
        for request in self.active:
            if request.blocks:
                free -= max(request.reserved(), request.blocks)
        admitted = []
        for request in contexts:
            if not request.blocks:
                if request.reserved() > free:
                    break
                free -= request.reserved()
            admitted.append(request)
        return admitted

    def max_utilization(self, batch, running, contexts):
        """MaxUtilizationScheduler: if the next step has no room, the request that started last is paused."""
        needed = sum(-(-(request.prompt + request.planned + 1) // BLOCK) - request.blocks for request in running)
        free = self.settings.blocks - self.used - max(needed, 0)
        while free < 0 and len(running) > 1:
            victim = running.pop()
            free += -(-(victim.prompt + victim.planned + 1) // BLOCK)
            self.used -= victim.blocks
            victim.blocks, victim.context, victim.target = 0, 0, victim.prompt + victim.planned
            batch.paused += 1
        if batch.paused:
            return [request for request in contexts if request.blocks]
        admitted = []
        for request in contexts:
            size = 0 if request.blocks else -(-(request.target + 1) // BLOCK)
            if size > free:
                break
            free -= size
            admitted.append(request)
        return admitted

    def grow(self, request, tokens):
        more = -(-tokens // BLOCK) - request.blocks
        if more > 0:
            request.blocks += more
            request.peak = max(request.peak, request.blocks)
            self.used += more
            self.allocated += more

    def launch(self, batch):
        """`_forward_step`: the GPU starts after the batch before, or when the host has started it."""
        size = len(batch.decoding) + len(batch.chunks)
        eager = not self.iterations.uses_graph(batch.chunks, len(batch.decoding))
        self.now += self.settings.host + PREPARE + PREPARE_REQUEST * size + (PREPARE_EAGER if eager else 0.0)
        before, start = self.gpu_free, max(self.gpu_free, self.now)
        slower = self.settings.slower if start >= self.settings.slow_at else 1.0
        time = self.iterations.milliseconds(batch.chunks, len(batch.decoding), batch.kv_tokens) / 1e3
        batch.forward = time * slower * self.rand.gauss(1.0, NOISE)
        batch.end = self.gpu_free = start + batch.forward + SAMPLE
        batch.took = batch.end - (batch.stamp if batch.after_idle else before)

    def handle(self, batch, number):
        """Waits for the tokens of a batch, gives them to its requests (`_update_requests`, `_handle_responses`) and ends those
        that have all."""
        fetched, self.now = batch.stamp if not self.overlap else None, max(self.now, batch.end)
        self.now += HANDLE + HANDLE_REQUEST * (len(batch.decoding) + len(batch.chunks))
        ended = False
        for request in batch.first + batch.decoding:
            if request.handled >= request.output:
                continue  # the token after a stop word is thrown away
            request.handled += 1
            if request.handled == 1:
                request.first_token, request.first_iter = self.now, number
            if request.handled == request.output:
                request.last_token, request.last_iter = self.now, number
                self.used -= request.blocks
                request.blocks, ended = 0, True
                batch.completed += 1
                self.finished.append(request)
        if ended:
            self.active = [request for request in self.active if request.handled < request.output]
        # get_request_queue_size: what has arrived since the fetch of this pass.
        queued = self.arrived
        while queued < len(self.requests) and self.requests[queued].arrival <= self.now:
            queued += 1
        batch.queued = queued - self.arrived
        batch.used, batch.allocated = self.used, self.allocated
        batch.due, batch.handled_in = self.now, number
        if fetched is not None:
            batch.took = self.now - fetched
        self.batches.append(batch)


def throughput(iterations, settings, requests, overlap=True):
    """The requests per second of an engine that always has requests waiting: its capacity."""
    load = [request.again(number, 0.0) for number, request in enumerate(requests)]
    engine = Engine(iterations, dataclasses.replace(settings, slow_at=float("inf")), load, overlap).run(float("inf"))
    # The seats fill at the begin and empty at the end; neither belongs to the steady state.
    ends = [request.last_token for request in engine.finished]
    first = next(batch.due for batch in engine.batches if batch.due >= ends[len(ends) // 5])
    last = load[-1].first_scheduled
    return sum(first < end <= last for end in ends) / (last - first) if last > first else len(ends) / ends[-1]
