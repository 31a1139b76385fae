package bench;

import java.util.List;

/** One system. */
interface Peer {
    /** What {@code describe} prints, as JSON. */
    String describe();

    /** Whether jobs that come due while no worker runs are gone. */
    boolean hearsOnlyWhileListening();

    /** Whether it has a call for many jobs. */
    boolean hasBulk();

    /** How many jobs {@link #offerBulk} takes at a time. */
    int together();

    /** The most jobs where the time of all counts: more would be more than a few seconds' work. */
    int atMost(boolean shuffled);

    /** Lets the JVM compile what follows, with jobs that are not counted. */
    void warmUp() throws Exception;

    void offer(Job job);

    /** Offers many jobs in the fastest way there is. */
    void offerBulk(List<Job> jobs);

    /** Called when a backlog has been offered, before the worker starts. */
    void offered();

    /** Starts a worker, which runs until the process ends. */
    void work(int concurrency, Handler handler);
}
