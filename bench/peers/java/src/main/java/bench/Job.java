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
    /** As many as asked for, in the order asked for. */
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

    /** The same, and the payload tells the due time, so that a handler knows how late it is. */
    Job telling() {
        var body = payload.substring(0, payload.lastIndexOf('}'));
        return new Job(number, due, body + ",\"due\":" + due + "}");
    }

    /** The due time that a payload tells, which is its last field. */
    static long due(String payload) {
        return Long.parseLong(payload.substring(payload.lastIndexOf(':') + 1, payload.length() - 1));
    }

    /** How long it is until then, in milliseconds; at least 1. */
    long delay() {
        return Math.max(due - System.currentTimeMillis(), 1);
    }

    /** The wall clock with fractions of a millisecond. */
    static double nowMs() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now()) / 1e3;
    }
}
