package bench;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** A record that every peer's handler calls: it counts starts, and notes their times. */
final class Handler {
    private final int wanted;
    private final boolean ends;
    private final boolean asksDue;
    private final CountDownLatch all = new CountDownLatch(1);
    private final List<Long> starts = new ArrayList<>();
    private final List<Double> lateMs = new ArrayList<>();

    private Handler(int wanted, boolean ends, boolean asksDue) {
        this.wanted = wanted;
        this.ends = ends;
        this.asksDue = asksDue;
    }

    static Handler counting(int wanted) {
        return new Handler(wanted, true, false);
    }

    static Handler timing(int wanted) {
        return new Handler(wanted, true, true);
    }

    static Handler neverEnding(int wanted) {
        return new Handler(wanted, false, false);
    }

    boolean ends() {
        return ends;
    }

    void handle(String payload) {
        started(asksDue ? Job.due(payload) : 0);
    }

    /** Handles a job of which only the due time is left. */
    void handleDue(long due) {
        started(due);
    }

    private void started(long due) {
        long start = System.nanoTime();
        double now = asksDue ? Job.nowMs() : 0;
        synchronized (this) {
            starts.add(start);
            if (asksDue) {
                lateMs.add(now - due);
            }
            if (starts.size() == wanted) {
                all.countDown();
            }
        }
        if (!ends) {
            waitForEver();
        }
    }

    private static void waitForEver() {
        try {
            new CountDownLatch(1).await();
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    /** Waits until as many handlers as wanted have started, or none has for {@code maxQuiet} milliseconds. */
    void allStarted(long maxQuiet) throws InterruptedException {
        for (int before = -1; before != starts().size(); ) {
            before = starts().size();
            if (all.await(maxQuiet, TimeUnit.MILLISECONDS)) {
                return;
            }
        }
    }

    boolean allWithin(long ms) throws InterruptedException {
        return all.await(ms, TimeUnit.MILLISECONDS);
    }

    /** Returns the starts by {@link System#nanoTime}. */
    synchronized List<Long> starts() {
        return List.copyOf(starts);
    }

    synchronized List<Double> lateMs() {
        return List.copyOf(lateMs);
    }
}
