package bench;

import java.util.List;

/** One system. */
interface Peer {
    /** Returns the JSON that {@code describe} prints. */
    String describe();

    /** Returns whether jobs that come due without a worker are lost. */
    boolean losesJobsWithoutWorker();

    /** Returns whether it has a call for many jobs. */
    boolean hasBulk();

    /** Returns how many jobs {@link #offerBulk} takes at a time. */
    int together();

    /** Returns the most jobs of measures that time all jobs: more would take more than a few seconds. */
    int atMost(boolean shuffled);

    /** Makes the JVM compile the code, with jobs that do not count. */
    void warmUp() throws Exception;

    void offer(Job job);

    /** Offers many jobs in the fastest possible way. */
    void offerBulk(List<Job> jobs);

    /** Called when a backlog has been offered, before the worker starts. */
    void offered();

    /** Starts a worker, which runs until the process ends. */
    void work(int concurrency, Handler handler);
}
