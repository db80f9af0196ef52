"""The known-bad behaviours of FAULTS, section 7, in that order, each as a small change of the product's text.

They were found in public operators and at the message bus.  `stories` are the tests that reject a patch which the
simulation does not see; a patch without stories is the simulation's alone.
"""

from collections.abc import Callable

import msgspec

Edit = tuple[str, str, str]
"""A file, a text that occurs once in it, and the text that replaces it."""


class Patch(msgspec.Struct, frozen=True):
    """One planted behaviour."""

    name: str
    edits: tuple[Edit, ...]
    stories: tuple[str, ...] = ()


def changed(patch: Patch, read: Callable[[str], str]) -> dict[str, str]:
    """The new text of each file that the patch changes; `read` returns the text of a file."""
    texts: dict[str, str] = {}
    for name, old, new in patch.edits:
        text = texts.get(name) or read(name)
        assert text.count(old) == 1, f"{name} has {old!r} {text.count(old)} times"
        texts[name] = text.replace(old, new)
    return texts


ACTS = "shared/runtime/acts.py"
APPENDS = "shared/runtime/appends.py"
ASKING = "services/watcher/asking.py"
CACHE = "services/watcher/core/cache.py"
CAPACITY = "shared/job/policies/capacity.py"
CLOCK = "services/watcher/core/clock.py"
TIMING = "shared/job/timing.py"
CONTRACT = "tests/contract/test_eventlog.py"
CONFLICTS = "shared/runtime/ownership.py"
COMMANDS = "services/scaler/core/commands.py"
EVOLVE_REQUESTS = "shared/job/evolve_requests.py"
FOLD = "shared/job/fold.py"
GANGS = "shared/job/policies/gangs.py"
GANGS_DECIDE = "services/scheduler/core/gangs.py"
HEADS = "services/watcher/core/heads.py"
JETSTREAM = "shared/eventlog/jetstream.py"
KUBE = "shared/cluster/kube.py"
EFFECTS_QUEUE = "shared/runtime/queue.py"
LIMITER = "shared/flow.py"
LAUNCHER_COMMANDS = "services/scaler/launcher_commands.py"
REPLACEMENT = "shared/job/policies/replacement.py"
MEMBERSHIP = "services/scaler/core/membership.py"
OBSERVE = "services/watcher/core/observe.py"
PODS = "shared/job/evolve_pods.py"
SCALER_DECIDE = "services/scaler/core/decide.py"
SCALING = "shared/job/scaling.py"
QUEUEING = "services/scheduler/core/queueing.py"
QUOTA = "shared/job/policies/quota.py"
KUEUE = "shared/frameworks/queueing.py"
REFLECTOR = "shared/cluster/reflector.py"
REQUESTS = "services/watcher/core/requests.py"
RUN = "shared/runtime/run.py"
SCALE = "services/scaler/core/scale.py"
SCHEDULER = "services/scheduler/shell.py"
SLOTS = "services/scheduler/core/slots.py"
STATUS = "services/status/shell.py"
STATUS_DECIDE = "services/status/core/decide.py"
SUBJECT = "shared/eventlog/subject.py"
TEMPLATES = "shared/frameworks/templates.py"
WATCHER_EVENTS = "shared/job/events/watcher.py"
WATCHES = "services/watcher/watches.py"
WIRE = "shared/eventlog/wire.py"

_APPEND = "                known.awaited = await self._log.append(entry, expect=expect)\n"
_BATCH = "        for stored in batch.events:\n"
_SHOWS_GONE = "        return pod.version <= listing.version or self.epoch > job.resource.epoch\n"

PATCHES = (
    Patch(
        "a view of a pod counts whatever its version",
        (
            (PODS, "if known is not None and not newer(pod, known):", "if known is not None and known == pod:"),
            (OBSERVE, "return newer(pod, known) and recorded_part(pod)", "return recorded_part(pod)"),
        ),
        ("tests/job/test_evolve.py", "tests/watcher/test_observe.py"),
    ),
    Patch(
        "the scheduler deletes the pods of that name in all namespaces",
        (
            (
                SCHEDULER,
                "                await self._delete(PODS, context.job, effect.name, effect.uid, "
                "grace=0 if effect.force else None)\n",
                "                async for seen in self._cluster.watch(PODS, selector=JOB_UID):\n"
                "                    found = [pod.metadata for pod in getattr(seen, 'objects', ())]\n"
                "                    for meta in [each for each in found if each.name == effect.name]:\n"
                "                        await self._cluster.delete(PODS, meta.namespace, meta.name, uid=meta.uid)\n"
                "                    break\n",
            ),
        ),
        ("tests/service/test_fences.py",),
    ),
    Patch(
        "a status goes to a newer object of the same name",
        (
            (
                STATUS,
                "            if held is None or held.metadata.uid != effect.uid:\n",
                "            if held is None:\n",
            ),
            (
                STATUS,
                '        patch = {"metadata": {"resourceVersion": version}, "status": status}\n',
                '        patch = {"status": status}\n',
            ),
        ),
        ("tests/service/test_fences.py",),
    ),
    Patch(
        "a replica that was paused sets back a status",
        ((STATUS, "            return shown == own\n", "            return True\n"),),
        ("tests/service/test_fences.py",),
    ),
    Patch(
        "a GET of a job that fails means that the job is gone",
        (
            (ASKING, "import asyncio\n", "import asyncio\nimport contextlib\n"),
            (
                ASKING,
                "        found = await self._cluster.get(self._kinds.of(history.job).resource, ",
                "        with contextlib.suppress(Transient):\n"
                "            found = None\n"
                "            found = await self._cluster.get(self._kinds.of(history.job).resource, ",
            ),
        ),
        ("tests/watcher/test_shell.py",),
    ),
    Patch(
        "any failed GET means that there is no object",
        (
            (
                KUBE,
                "            if is_named_absence(failure.status):\n                return None\n"
                "            raise trouble(failure.status, what) from",
                "            return None\n            raise trouble(failure.status, what) from",
            ),
        ),
        ("tests/cluster/test_kube.py",),
    ),
    Patch(
        "a script without a launcher counts as successful",
        (
            (
                COMMANDS,
                "        return [_failed(request, reasons.NO_LAUNCHER, causes.of_launcher(job))]\n",
                "        return None\n",
            ),
        ),
        ("tests/scaler/test_script.py",),
    ),
    Patch(
        "a scale-in finds workers by a part of their names",
        (("shared/job/naming.py", "return int(index) if index != name", "return int(index[0]) if index != name"),),
        ("tests/frameworks/test_scale_requests.py",),
    ),
    Patch(
        "a drain finds workers by a part of their names",
        ((COMMANDS, "if name.encode() in named)", "if name.encode() in arguments)"),),
        ("tests/scaler/test_drain.py",),
    ),
    Patch(
        "a pod that replaces a lost one waits for a gang that is smaller by now",
        (
            (
                GANGS,
                "    return [gang for gang in known(job) if gang.slots and gang.slots.isdisjoint(placed)]",
                "    return [gang for gang in known(job) if gang.slots]",
            ),
        ),
        ("tests/scheduler/test_gangs.py",),
    ),
    Patch(
        "a launcher is one of the gang that it waits for",
        ((GANGS, "OUTSIDE = frozenset({LAUNCHER, RENDEZVOUS})", "OUTSIDE = frozenset({RENDEZVOUS})"),),
        ("tests/scheduler/test_gangs.py",),
    ),
    Patch(
        "a PodGroup that a person deletes stays away",
        ((GANGS_DECIDE, "(POD_GROUP, gang.name) not in job.objects.children)", "not job.objects.children)"),),
        ("tests/scheduler/test_gangs.py", "tests/service/test_gangs.py"),
    ),
    Patch(
        "a pod of a gang that waits is lost for good",
        ((REPLACEMENT, " or (spec.gang is not None and not vacancy.ran))", ")"),),
        ("tests/scheduler/test_gangs.py", "tests/service/test_gangs.py"),
    ),
    Patch(
        "a container begins again in place for ever",
        ((PODS, "if pod.restarts >= MOST_IN_PLACE or (", "if ("),),
        ("tests/job/test_restarts_in_place.py",),
    ),
    Patch(
        "restarts in place count against no limit",
        ((PODS, "                    replaced += 1", "                    replaced += 0"),),
        ("tests/job/test_restarts_in_place.py",),
    ),
    Patch(
        "the loss of a node counts as a failure there",
        (
            (
                PODS,
                "                    if not vacancies[slot].blameless:\n                        failed_on",
                "                    if True:\n                        failed_on",
            ),
        ),
        ("tests/job/test_restarts_in_place.py",),
    ),
    Patch(
        "a job keeps off a node for ever",
        ((TIMING, "        yield promise(failures.at, timers.AVOIDED, nodes.AVOIDED_SECONDS)", "        pass"),),
        ("tests/job/test_restarts_in_place.py",),
    ),
    Patch(
        "quota goes back while pods are there",
        ((QUEUEING, "    return not view.reserved or (fenced and quota.is_empty(job))", "    return True"),),
        ("tests/scheduler/test_queueing.py",),
    ),
    Patch(
        "a job grows in the queue of a new label",
        ((QUEUEING, "_next(job, known), view.queue, asked, rep", "_next(job, known), job.spec.queue, asked, rep"),),
        ("tests/scheduler/test_queueing.py",),
    ),
    Patch(
        "a job keeps the quota of an older Workload",
        ((QUEUEING, "    return enough and (older or bool(other.evicted))", "    return False"),),
        ("tests/scheduler/test_queueing.py",),
    ),
    Patch(
        "a Workload without quota stops a running job",
        (
            (QUOTA, "any(view.reserved and not (view.finished", "any(not (view.finished"),
            (QUOTA, "job.attempt.queued and holds", "holds"),
        ),
        ("tests/scheduler/test_queueing.py",),
    ),
    Patch(
        "a label that comes back stops a running job",
        ((QUOTA, "        return job.attempt.queued or", "        return bool(job.objects.queued) or"),),
        ("tests/scheduler/test_queueing.py",),
    ),
    Patch(
        "an evicted Workload's quota goes back while pods are there",
        ((QUEUEING, "        if quota.is_empty(job) and job.may_try", "        if job.may_try"),),
        ("tests/scheduler/test_queueing.py",),
    ),
    Patch(
        "an evicted job runs on",
        ((QUOTA, "not (view.evicted or view.deleting or", "not (view.deleting or"),),
        ("tests/scheduler/test_queueing.py",),
    ),
    Patch(
        "a job gets pods beyond its quota",
        (
            (
                SLOTS,
                "capacity.within(job, quota.within(job, wanted))",
                "capacity.within(job, wanted)",
            ),
        ),
        ("tests/scheduler/test_queueing.py",),
    ),
    Patch(
        "a job begins with more workers than it has quota for",
        ((SLOTS, "quota.most_workers(job, sizes[WORKER])", "sizes[WORKER]"),),
        ("tests/scheduler/test_queueing.py",),
    ),
    Patch(
        "quota for other templates is the job's",
        ((QUOTA, "    begins = job.suspended or", "    begins = job.over and job.suspended or"),),
        ("tests/scheduler/test_queueing.py",),
    ),
    Patch(
        "quota that was given anew goes back",
        ((KUEUE, '    if not (_is_true(workload, "Evicted") and has_quota(workload)):', "    if False:"),),
        ("tests/scheduler/test_workloads.py",),
    ),
    Patch(
        "a scale-out is accepted without quota",
        ((SCALER_DECIDE, "not _has_quota(job, answer)", "False"),),
        ("tests/scheduler/test_queueing.py",),
    ),
    Patch(
        "the newest scale request is chosen",
        (
            (SCALING, "        return next((request for request in", "        waiting = [request for request in"),
            (
                SCALING,
                'if request.phase == "Pending"), None)\n',
                'if request.phase == "Pending"]\n'
                "        return max(waiting, key=lambda request: request.order, default=None)\n",
            ),
        ),
        ("tests/scaler/test_queue.py",),
    ),
    Patch(
        "a scale-out succeeds before the hosts files are confirmed",
        ((SCALE, "        if request.seen:\n", "        if request.published:\n"),),
        ("tests/scaler/test_scale_out.py",),
    ),
    Patch(
        "a pod is deleted before the hosts files change",
        (
            (
                SLOTS,
                "    released = there - job.attempt.unreleased\n",
                "    released = (there - job.attempt.unreleased) | job.outgoing\n",
            ),
        ),
        ("tests/scaler/test_scale_in.py", "tests/scheduler/test_slots.py"),
    ),
    Patch(
        "restarts are counted in the memory of the status service",
        (
            (
                STATUS,
                "from shared.job.state import Job, Memo\n",
                "from shared.job.state import Job, Memo, with_retries\n",
            ),
            (
                STATUS,
                "        self._acts = asyncio.Event()\n",
                "        self._acts = asyncio.Event()\n"
                "        self._counted: defaultdict[JobKey, set[int]] = defaultdict(set)\n",
            ),
            (
                STATUS,
                "        steps = self._steps(history.job)\n",
                "        job, counted = history.job, self._counted[history.job.key]\n"
                "        restarts = len(counted - {job.attempt.number})\n"
                "        steps = decide(with_retries(job, restarts=restarts), self._kinds)\n"
                '        for event in [getattr(step, "event", None) for step in steps]:\n'
                "            asked = bool(job.retries.restart_wanted)\n"
                '            if type(event).__name__ == "JobRestarting" and event.counted and not asked:\n'
                "                counted.add(job.attempt.number)\n",
            ),
        ),
        ("tests/service/test_weather.py",),
    ),
    Patch(
        "scale requests are ordered by their creation time",
        (
            (
                REQUESTS,
                "        return (order.get(request.uid, last), request.created, request.version)\n",
                "        return (0, request.created, 0)\n",
            ),
        ),
        ("tests/watcher/test_observe.py", "tests/watcher/test_shell.py"),
    ),
    Patch(
        "events are folded in the order of their times",
        ((RUN, _BATCH, "        for stored in sorted(batch.events, key=lambda stored: stored.time):\n"),),
        ("tests/service/test_runtime.py",),
    ),
    Patch(
        "the fold knows pods by their names and not by their uids",
        (
            (
                PODS,
                "        known = pods.get(pod.uid)\n",
                "        known = next((held for held in pods.values() if held.name == pod.name), None)\n",
            ),
        ),
        ("tests/job/test_evolve.py",),
    ),
    Patch(
        "the watcher knows pods by their names and not by their uids",
        (
            (
                OBSERVE,
                "    gone = [uid for uid, pod in job.pods.views.items() if uid not in now and ",
                "    names = {pod.name for pod in now.values()}\n"
                "    gone = [uid for uid, pod in job.pods.views.items() if pod.name not in names and ",
            ),
        ),
        ("tests/watcher/test_observe.py",),
    ),
    Patch(
        "a broken watch clears its cache and does not list again",
        (
            (
                WATCHES,
                "                await self._blind(resource, listing, reason)\n",
                "                await self._blind(resource, listing, reason)\n"
                "                for at in [*listing]:\n"
                "                    concerned = (*concerned, *put(at, None))\n",
            ),
        ),
        ("tests/service/test_weather.py",),
    ),
    Patch(
        "the answer 410 is ignored",
        ((REFLECTOR, 'found.reason in (EXPIRED, AHEAD, "NotFound")', 'found.reason in (AHEAD, "NotFound")'),),
        ("tests/cluster/test_reflector.py",),
    ),
    Patch(
        "absence counts before a list is complete",
        (
            (CACHE, "        return self.version > 0 and not self.outdated\n", "        return True\n"),
            (CACHE, _SHOWS_GONE, "        return True\n"),
        ),
        ("tests/watcher/test_observe.py",),
    ),
    Patch(
        "an index is used again while the old pod is terminating",
        (
            (
                SCALE,
                "    if job.spec is None or not job.spec.handling.in_place:\n",
                "    if job.spec is None:\n",
            ),
            (
                REPLACEMENT,
                " | {pod.slot for pod in job.pods.views.values()}\n    return SortedSet(slot.index",
                "\n    return SortedSet(slot.index",
            ),
        ),
        ("tests/scaler/test_groups.py", "tests/scaler/test_queue.py"),
    ),
    Patch(
        "a slot that had a pod once gets no other",
        (
            (
                SLOTS,
                "- there if _known(job, slot)]\n",
                "- there if _known(job, slot) and slot not in job.attempt.news]\n",
            ),
        ),
        ("tests/job/test_replicated_jobs.py", "tests/scaler/test_groups.py"),
    ),
    Patch(
        "an append is guarded by the duplicate window alone",
        (
            (WIRE, "        EXPECTED: str(expect),\n", ""),
            (WIRE, "        EXPECTED_SCOPE: subject.scope,\n", ""),
        ),
        ("tests/eventlog/test_wire.py", f"{CONTRACT}::test_of_two_decisions_on_the_same_basis_one_is_accepted"),
    ),
    Patch(
        "every wrong last sequence is taken for the write of another",
        ((JETSTREAM, "            return await self._ours_after(entry, expect, error)\n", "            raise\n"),),
        ("tests/eventlog/test_unknown_outcomes.py",),
    ),
    Patch(
        "every wrong last sequence is taken for the own write",
        ((JETSTREAM, "        if first.event_id != entry.event_id:\n", "        if first.sequence <= expect:\n"),),
        (
            "tests/eventlog/test_unknown_outcomes.py",
            f"{CONTRACT}::test_of_two_decisions_on_the_same_basis_one_is_accepted",
        ),
    ),
    Patch(
        "a service acts before its decision is in the log",
        (
            (
                RUN,
                "from shared.job.events.event import Author\n",
                "from shared.job.events.event import At, Author, Decided\n",
            ),
            (
                RUN,
                "from shared.job.fold import Held, Histories, History\n",
                "from shared.job.evolve import evolve\nfrom shared.job.fold import Held, Histories, History\n",
            ),
            (
                RUN,
                "        if record is None:\n",
                "        if record is not None and isinstance(record.event, Decided):\n"
                "            ahead = History(key)\n"
                "            ahead.job = evolve(history.job, record.event, At(history.sequence + 1, history.time))\n"
                "            steps = [*steps, *self.service.decide(ahead)]\n"
                "        if record is None:\n",
            ),
        ),
        ("tests/service/test_runtime.py",),
    ),
    Patch(
        "the outcome of a script is recorded before the script runs",
        (
            (
                LAUNCHER_COMMANDS,
                "            ended = await self._cluster.execute("
                "key.namespace, effect.pod, effect.container, command, timeout=timeout)\n",
                "            work = self._cluster.execute("
                "key.namespace, effect.pod, effect.container, command, timeout=timeout)\n"
                "            running = loop.create_task(work)\n"
                "            running.add_done_callback(lambda task: task.cancelled() or task.exception())\n"
                "            return ScriptFinished(request=effect.request, exit_code=0)\n",
            ),
        ),
        ("tests/scaler/test_launcher_commands.py",),
    ),
    Patch(
        "a refused effect is retried for ever and never recorded",
        (
            (
                ACTS,
                "            return refusal\n",
                "            self._requeue_after(key, failed(item, self._time(), self._chance(), None))\n"
                "            return None\n",
            ),
        ),
        ("tests/service/test_runtime.py",),
    ),
    Patch(
        "a decision is sent without waiting for the acknowledgement",
        (
            (
                APPENDS,
                _APPEND,
                "                sending = asyncio.ensure_future(self._log.append(entry, expect=expect))\n"
                "                sending.add_done_callback(lambda task: task.cancelled() or task.exception())\n",
            ),
        ),
        ("tests/service/test_runtime.py", "tests/service/test_runtime_once.py"),
    ),
    Patch(
        "events of an unknown type are skipped",
        ((FOLD, "            if not stored.optional:\n", "            if stored.sequence < 0:\n"),),
        ("tests/job/test_fold.py",),
    ),
    Patch(
        "facts and decisions are folded as they arrive and not in their order",
        (
            (
                RUN,
                _BATCH,
                '        for stored in sorted(batch.events, key=lambda each: each.subject.startswith("jobs.")):\n',
            ),
            (
                FOLD,
                "        if stored.sequence <= self.position:\n"
                "            return None\n"
                "        self.position = stored.sequence\n",
                "        self.position = max(self.position, stored.sequence)\n",
            ),
        ),
        ("tests/job/test_fold.py",),
    ),
    Patch(
        "a status shows a phase that is only in memory",
        (
            (
                STATUS_DECIDE,
                "from services.status.core import announce, documents\n",
                "import msgspec\n\nfrom services.status.core import announce, documents\n",
            ),
            (
                STATUS_DECIDE,
                "        return [phase]",
                '        ahead = msgspec.structs.replace(job, phase=type(phase.event).__name__.removeprefix("Job"))\n'
                "        return [phase, *documents.of_job(ahead, kinds)]",
            ),
        ),
        ("tests/status/test_documents.py",),
    ),
    Patch(
        "one guard spans the facts and the decisions of a job",
        (
            (
                SUBJECT,
                "        return _filter(self.family, self.namespace, self.name, self.uid, author)\n",
                '        return _filter("*", self.namespace, self.name, self.uid, "*")\n',
            ),
            (
                APPENDS,
                "            return history.facts.get(self._author, 0)\n",
                "            return history.sequence\n",
            ),
            (APPENDS, "        return history.last_decision\n", "        return history.sequence\n"),
        ),
        (
            "tests/eventlog/test_wire.py",
            f"{CONTRACT}::test_scopes_do_not_stand_in_each_others_way",
            "tests/service/test_runtime.py",
        ),
    ),
    Patch(
        "a script is joined into a line for a shell",
        ((COMMANDS, '    run = ["sh", script, hosts]\n', '    run = ["sh", "-c", f"{script} {hosts}"]\n'),),
        ("tests/scaler/test_script.py", "tests/scaler/test_launcher_commands.py"),
    ),
    Patch(
        "the first container is assumed to exist and to train",
        (
            (TEMPLATES, "    if not containers:\n", "    if len(containers) < 0:\n"),
            (
                TEMPLATES,
                '    training = next((known for known in containers if name in ("", known.raw("name"))), None)\n',
                "    training = containers[0]\n",
            ),
        ),
        ("tests/frameworks/test_training_job.py", "tests/frameworks/test_kubeflow.py"),
    ),
    Patch(
        "a refusal is recorded with the values of the pod's environment",
        (
            (
                SCHEDULER,
                "                raise without_values(as_sent(refusal, manifest), what, manifest) from None\n",
                "                raise\n",
            ),
        ),
        ("tests/scheduler/test_shell.py",),
    ),
    Patch(
        "a deadline begins anew with each watcher",
        ((CLOCK, "_remaining(timer, server)\n", "timer.seconds\n"),),
        ("tests/watcher/test_clock.py",),
    ),
    Patch(
        "the creation of a pod has no deadline",
        ((SCHEDULER, "CREATED_WITHIN_SECONDS if resource is PODS else 0", "0"),),
        ("tests/service/test_late_creations.py",),
    ),
    Patch(
        "a promise begins when its author's clock said so",
        ((TIMING, "anchor.logged or anchor.time", "anchor.time"),),
        ("tests/service/test_clocks.py",),
    ),
    Patch(
        "the lease is trusted, and a decision has no fence",
        (
            (
                APPENDS,
                _APPEND,
                "                newest = await self._log.last(Subject.parse(entry.subject).scope)\n"
                "                at = newest.sequence if newest is not None else 0\n"
                "                known.awaited = await self._log.append(entry, expect=at)\n",
            ),
        ),
        ("tests/service/test_runtime.py",),
    ),
    Patch(
        "a stale list deletes what it does not show",
        (
            (
                WATCHES,
                "                        if await self._went_back(before, seen):\n",
                "                        if seen.version < 0:\n",
            ),
            (CACHE, _SHOWS_GONE, "        return listing.listed\n"),
        ),
        ("tests/watcher/test_epochs.py", "tests/watcher/test_observe.py"),
    ),
    Patch(
        "an object of another owner is adopted by its name",
        (
            (
                CONFLICTS,
                "    if is_controlled(meta, key) and same and meta.deletion_timestamp is None:\n",
                "    if meta.deletion_timestamp is None:\n",
            ),
        ),
        ("tests/service/test_ownership.py",),
    ),
    Patch(
        "a sequence that was used again after a truncation is accepted",
        (
            (
                HEADS,
                "    if known is None or known == named.head.hash:\n",
                "    if known is None or named.head.hash:\n",
            ),
        ),
        ("tests/watcher/test_heads.py",),
    ),
    Patch(
        "a watch reads ahead into a queue without a bound",
        (
            (
                REFLECTOR,
                "    async def run(self) -> AsyncGenerator[Seen[T], None]:\n",
                "    async def run(self) -> AsyncGenerator[Seen[T], None]:\n"
                "        queue: asyncio.Queue[Seen[T] | None] = asyncio.Queue()\n"
                "\n"
                "        async def fill() -> None:\n"
                "            try:\n"
                "                async with aclosing(self._run()) as all_seen:\n"
                "                    async for seen in all_seen:\n"
                "                        queue.put_nowait(seen)\n"
                "            finally:\n"
                "                queue.put_nowait(None)\n"
                "\n"
                "        filling = asyncio.create_task(fill())\n"
                "        try:\n"
                "            while (seen := await queue.get()) is not None:\n"
                "                yield seen\n"
                "        finally:\n"
                "            filling.cancel()\n"
                "\n"
                "    async def _run(self) -> AsyncGenerator[Seen[T], None]:\n",
            ),
        ),
        ("tests/cluster/test_reflector.py",),
    ),
    Patch(
        "bulk work has no bound of its own",
        ((LIMITER, "return self.bulk.place(namespace)", "return self.interactive.place(namespace)"),),
        ("tests/cluster/test_limiter.py",),
    ),
    Patch(
        "a 429 lowers no bound",
        ((LIMITER, "self._set(max(self._limit / 2, 1.0))", "self._set(self._limit)"),),
        ("tests/cluster/test_limiter.py",),
    ),
    Patch(
        "one namespace may have every place",
        ((LIMITER, "OF_ONE = 0.8", "OF_ONE = 1.0"),),
        ("tests/cluster/test_limiter.py",),
    ),
    Patch(
        "jobs of one namespace take no turns",
        ((LIMITER, ".setdefault(job, deque())", ".setdefault(None, deque())"),),
        ("tests/service/test_turns.py",),
    ),
    Patch(
        "one pod is bulk work",
        ((EFFECTS_QUEUE, "for item in bulk}) > 1:", "for item in bulk}) > 0:"),),
        ("tests/service/test_fairness.py",),
    ),
    Patch(
        "no attempt waits for a pod whose slot was released before the last one ended",
        ((EVOLVE_REQUESTS, "    if unseen and not job.over:", "    if unseen and job.between_attempts:"),),
        ("tests/service/test_late_creations.py",),
    ),
    Patch(
        "of a lost history the pods that wait for the others of their gang are taken on without these",
        ((HEADS, "any(pod.node or pod.ran for pod in pods.values() if pod.slot in slots)", "slots"),),
        ("tests/watcher/test_heads.py",),
    ),
    Patch(
        "a worker joins again each time that its node is back",
        ((CAPACITY, "    back = _come_back(job)\n", "    back = set[int]()\n"),),
        ("tests/scaler/test_lost_nodes.py", "tests/service/test_capacity.py"),
    ),
    Patch(
        "hosts files that another client changed stay",
        ((MEMBERSHIP, "bool(job.hosts_edited) and capacity.may_grow(job)", "False"),),
        ("tests/service/test_hosts_files.py",),
    ),
    Patch(
        "hosts files are put right for each change of another client",
        ((MEMBERSHIP, "bool(job.hosts_edited) and capacity.may_grow(job)", "bool(job.hosts_edited)"),),
        ("tests/service/test_hosts_files.py",),
    ),
    Patch(
        "a pod that was made again wakes no job",
        ((CACHE, "before[0] == seen[0] and before[1].uid == seen[1].uid:", "before[0] == seen[0]:"),),
        ("tests/watcher/test_cache.py",),
    ),
    Patch(
        "one lock serves all jobs",
        (
            (ACTS, "EFFECTS_IN_FLIGHT = 512\n", "EFFECTS_IN_FLIGHT = 1\n"),
            (APPENDS, "APPENDS_IN_FLIGHT = 64\n", "APPENDS_IN_FLIGHT = 1\n"),
        ),
        ("tests/service/test_runtime.py",),
    ),
    Patch(
        "a wait blocks the event loop",
        (
            (ACTS, "import contextlib\n", "import contextlib\nimport time\n"),
            (
                ACTS,
                "        with contextlib.suppress(TimeoutError):\n"
                "            async with asyncio.timeout(TOGETHER_SECONDS):\n"
                "                await round_.answered.wait()\n",
                "        time.sleep(TOGETHER_SECONDS)\n",
            ),
        ),
        ("tests/service/test_runtime.py",),
    ),
    Patch(
        "a replay of the log carries out effects again",
        (
            (
                RUN,
                "                changed[history.job.key] = None\n",
                "                changed[history.job.key] = None\n                self._decide(history.job.key)\n",
            ),
            (
                RUN,
                "        if self._stopping or not self.acting:\n",
                "        if self._stopping or not self.owns():\n",
            ),
        ),
        ("tests/service/test_runtime.py",),
    ),
    Patch(
        "a field was added to an event without a default for older ones",
        (
            (
                WATCHER_EVENTS,
                "class JobDeleting(Event, frozen=True, ",
                "class JobDeleting(Event, frozen=True, kw_only=True, ",
            ),
            (WATCHER_EVENTS, "    finalizers: tuple[str, ...] = ()\n", "    finalizers: tuple[str, ...]\n"),
        ),
        ("tests/job/test_events.py", "tests/histories/test_releases.py"),
    ),
)

NOT_PLANTED: tuple[tuple[str, str], ...] = ()
"""Behaviours that the design makes impossible to plant in a few lines, each with the reason."""
