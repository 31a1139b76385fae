package bench;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.function.IntToLongFunction;

/**
 * One job to offer.
 *
 * @param due in milliseconds since 1970
 */
record Job(int number, long due, String payload) {
    /** Creates the jobs of the settings, in their order. */
    static List<Job> many(Settings settings, IntToLongFunction due) {
        var jobs = new ArrayList<Job>(settings.count());
        for (int number = 0; number < settings.count(); number++) {
            jobs.add(new Job(number, due.applyAsLong(number), settings.payload()));
        }
        if (settings.shuffled()) {
            Collections.shuffle(jobs);
        }
        return jobs;
    }

    /** Adds the due time to the payload, so that a handler can measure its lateness. */
    Job withDue() {
        var body = payload.substring(0, payload.lastIndexOf('}'));
        return new Job(number, due, body + ",\"due\":" + due + "}");
    }

    /** Returns the due time of a payload, which is its last field. */
    static long due(String payload) {
        return Long.parseLong(payload.substring(payload.lastIndexOf(':') + 1, payload.length() - 1));
    }

    /** Returns the time until it is due, in milliseconds; at least 1. */
    long delay() {
        return Math.max(due - System.currentTimeMillis(), 1);
    }

    /** Returns the wall clock's time with fractions of a millisecond. */
    static double nowMs() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now()) / 1e3;
    }
}
