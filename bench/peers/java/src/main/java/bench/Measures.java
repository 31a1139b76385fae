package bench;

import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;

/** The protocol of {@code bench/README.md}, without the systems. */
final class Measures {
    private static final int TASKS = 32;
    private static final int KILLED = 10;
    private static final long MAX_QUIET_MS = 15_000;
    /** The least rates of offering, in jobs a millisecond: in bulk, and from tasks. */
    private static final int OFFERED_IN_BULK = 8;
    private static final int OFFERED = 2;
    private static final long KILL_MAX_WAIT_MS = 150_000;
    private static final long HOUR_MS = 3_600_000;
    private static final long DAY_MS = 24 * HOUR_MS;

    private final Peer peer;
    private final Settings settings;
    /** The settings with no more jobs than the peer handles in a few seconds. */
    private final Settings fewer;

    Measures(Peer peer, Settings settings) {
        this.peer = peer;
        this.settings = settings;
        this.fewer = settings.withCount(Math.min(settings.count(), peer.atMost(settings.shuffled())));
    }

    String throughput() throws Exception {
        peer.warmUp();
        int count = fewer.count();
        var handler = Handler.counting(count);
        if (peer.losesJobsWithoutWorker()) {
            peer.work(settings.concurrency(), handler);
        }
        long first = firstDue(count, OFFERED_IN_BULK);
        offerBulk(Job.many(fewer, number -> first + number * 200L / count));
        peer.offered();
        long left = leftUntil(first);
        if (!peer.losesJobsWithoutWorker()) {
            Thread.sleep(first + 200 - System.currentTimeMillis());
            peer.work(settings.concurrency(), handler);
        }
        handler.allStarted(left + MAX_QUIET_MS);
        var starts = handler.starts();
        if (starts.isEmpty()) {
            throw new IllegalStateException("nothing was handled");
        }
        double seconds = (Collections.max(starts) - Collections.min(starts)) / 1e9;
        return json("{\"handled\":%d,\"seconds\":%f,\"per_s\":%f}",
                starts.size(), seconds, (starts.size() - 1) / seconds);
    }

    String lateness() throws Exception {
        peer.warmUp();
        var handler = Handler.timing(settings.count());
        peer.work(settings.concurrency(), handler);
        long first = firstDue(settings.count(), OFFERED);
        var jobs = Job.many(settings, number -> first + number * 1_000L / settings.rate());
        offerFromTasks(jobs.stream().map(Job::withDue).toList());
        long left = leftUntil(first);
        handler.allStarted(left + settings.count() * 1_000L / settings.rate() + MAX_QUIET_MS);
        if (handler.starts().isEmpty()) {
            throw new IllegalStateException("nothing was handled");
        }
        var late = handler.lateMs().stream().sorted().toList();
        return json("{\"handled\":%d,\"early\":%d,\"p50_ms\":%f,\"p99_ms\":%f,\"max_ms\":%f}",
                late.size(), late.stream().filter(ms -> ms < 0).count(),
                percentile(late, 50), percentile(late, 99), percentile(late, 100));
    }

    String arm() throws Exception {
        double single = perSecond(() -> {
            inAnHour(0).forEach(peer::offer);
            return null;
        });
        double concurrent = perSecond(() -> offerFromTasks(inAnHour(1)));
        var bulk = peer.hasBulk() ? json("%f", perSecond(() -> offerBulk(inAnHour(2)))) : "null";
        return json("{\"single_per_s\":%f,\"concurrent_per_s\":%f,\"bulk_per_s\":%s}", single, concurrent, bulk);
    }

    /** Returns null for a peer that depends on expiries: a job that is due immediately has no time to expire. */
    String lives() throws Exception {
        if (peer.losesJobsWithoutWorker()) {
            return null;
        }
        peer.warmUp();
        var handler = Handler.counting(fewer.count());
        peer.work(settings.concurrency(), handler);
        long begun = System.nanoTime();
        offerFromTasks(Job.many(fewer, number -> 0));
        handler.allStarted(MAX_QUIET_MS);
        var starts = handler.starts();
        if (starts.isEmpty()) {
            throw new IllegalStateException("nothing was handled");
        }
        // A handler does nothing, so its start is its end.
        double seconds = (Collections.max(starts) - begun) / 1e9;
        return json("{\"handled\":%d,\"lives_per_s\":%f,\"seconds\":%f}",
                starts.size(), starts.size() / seconds, seconds);
    }

    String bytes() {
        offerBulk(Job.many(fewer, number -> System.currentTimeMillis() + DAY_MS));
        return json("{\"armed\":%d}", fewer.count());
    }

    String idle() throws Exception {
        peer.work(settings.concurrency(), Handler.counting(-1));
        Thread.sleep(settings.count() * 1_000L);
        return json("{\"seconds\":%d}", settings.count());
    }

    String kill() throws Exception {
        var handler = Handler.neverEnding(KILLED);
        peer.work(Math.max(settings.concurrency(), KILLED), handler);
        long soon = System.currentTimeMillis() + 500;
        Job.many(settings.withCount(KILLED), number -> soon).forEach(peer::offer);
        handler.allStarted(MAX_QUIET_MS);
        if (handler.starts().size() < KILLED) {
            throw new IllegalStateException("only " + handler.starts().size() + " handlers have started");
        }
        System.out.println(json("{\"started\":%d}", KILLED));
        Thread.sleep(Long.MAX_VALUE);
        return "";
    }

    String killAgain() throws Exception {
        long begun = System.nanoTime();
        var handler = Handler.counting(KILLED);
        peer.work(Math.max(settings.concurrency(), KILLED), handler);
        handler.allWithin(KILL_MAX_WAIT_MS);
        var seconds = handler.starts().stream()
                .map(start -> json("%f", (start - begun) / 1e9))
                .collect(Collectors.joining(","));
        return json("{\"again\":%d,\"seconds\":[%s]}", handler.starts().size(), seconds);
    }

    /** Returns the due time of the first job, far enough ahead to offer all jobs before it. */
    private static long firstDue(int count, int offeredEachMs) {
        return System.currentTimeMillis() + 2_000 + count / offeredEachMs;
    }

    /** Returns the time until the first job is due. Fails if it has passed, because all jobs must be offered before. */
    private static long leftUntil(long first) {
        long left = first - System.currentTimeMillis();
        if (left <= 0) {
            throw new IllegalStateException("offering took longer than was left until the first job was due");
        }
        return left;
    }

    /** Each round has numbers of its own, so that no job replaces another. */
    private List<Job> inAnHour(int round) {
        return Job.many(settings, number -> System.currentTimeMillis() + HOUR_MS).stream()
                .map(job -> new Job(job.number() + round * settings.count(), job.due(), job.payload()))
                .toList();
    }

    private Void offerFromTasks(List<Job> jobs) throws Exception {
        var next = new AtomicInteger();
        Callable<Void> task = () -> {
            for (int at = next.getAndIncrement(); at < jobs.size(); at = next.getAndIncrement()) {
                peer.offer(jobs.get(at));
            }
            return null;
        };
        var threads = Executors.newFixedThreadPool(TASKS);
        for (var ended : threads.invokeAll(Collections.nCopies(TASKS, task))) {
            ended.get();
        }
        threads.shutdown();
        return null;
    }

    private Void offerBulk(List<Job> jobs) {
        for (int from = 0; from < jobs.size(); from += peer.together()) {
            peer.offerBulk(jobs.subList(from, Math.min(from + peer.together(), jobs.size())));
        }
        return null;
    }

    private double perSecond(Callable<Void> offering) throws Exception {
        long begun = System.nanoTime();
        offering.call();
        return settings.count() * 1e9 / (System.nanoTime() - begun);
    }

    /** Returns a percentile by nearest rank. */
    private static double percentile(List<Double> sorted, int percent) {
        int rank = (sorted.size() * percent + 99) / 100;
        return sorted.get(Math.max(rank, 1) - 1);
    }

    private static String json(String format, Object... values) {
        return String.format(Locale.ROOT, format, values);
    }
}
