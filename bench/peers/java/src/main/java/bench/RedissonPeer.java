package bench;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;

import org.redisson.Redisson;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RDelayedQueue;
import org.redisson.api.RFuture;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * Redisson's delayed queue, in its community edition.
 *
 * <p>{@code RDelayedQueue} keeps jobs in a sorted set and a list, and a client that has the object moves those
 * that are due to a blocking queue, by 100. A consumer takes them from there with a plain pop: there is no
 * acknowledgement. It is marked as deprecated; its successor {@code RReliableQueue} is part of Redisson PRO only.
 * See <a href="https://redisson.pro/docs/data-and-services/queues/">its documentation</a>.
 */
@SuppressWarnings("deprecation")
final class RedissonPeer implements Peer {
    private static final int THREADS = 4;
    private static final int DRAINED = 499;
    private static final int WARM = 20_000;
    private static final int AT_MOST = 50_000;
    /** Each move searches the list in the order of offering: the time grows with the square of the backlog. */
    private static final int AT_MOST_SHUFFLED = 10_000;

    private final String url;
    private RedissonClient producer;
    private RDelayedQueue<String> delayed;

    RedissonPeer(String url) {
        this.url = url;
    }

    @Override
    public String describe() {
        return """
                {"name":"Redisson RDelayedQueue","version":"4.7.0","language":"Java",\
                "settings":"StringCodec, 4 netty threads, warmed up with 20,000 jobs; 4 threads that each take() one job \
                and poll(499) more, which was the fastest by far; throughput with 50,000 jobs (10,000 shuffled: each move \
                searches a list in the order of offering) due within 200 ms and moved by the worker's client, \
                offered by offerAsync with 250 in flight",\
                "survives_a_crash":false,\
                "leaves_out":"acknowledgements and retries (a plain pop: a killed worker's batch is lost), a bulk call with delays"}""";
    }

    @Override
    public boolean losesJobsWithoutWorker() {
        return false;
    }

    @Override
    public boolean hasBulk() {
        return false;
    }

    @Override
    public int together() {
        return 250;
    }

    @Override
    public int atMost(boolean shuffled) {
        return shuffled ? AT_MOST_SHUFFLED : AT_MOST;
    }

    @Override
    public void warmUp() throws Exception {
        var client = connect();
        RBlockingQueue<String> queue = client.getBlockingQueue("warm", StringCodec.INSTANCE);
        queue.addAll(Collections.nCopies(WARM, "{\"warm\":true,\"due\":0}"));
        var handler = Handler.timing(WARM);
        for (int left = WARM; left > 0; ) {
            handler.handle(queue.take());
            left--;
            for (var payload : queue.poll(DRAINED)) {
                handler.handle(payload);
                left--;
            }
        }
        client.shutdown();
    }

    @Override
    public void offer(Job job) {
        delayed().offer(job.payload(), job.delay(), TimeUnit.MILLISECONDS);
    }

    @Override
    public void offerBulk(List<Job> jobs) {
        var offers = new ArrayList<RFuture<Void>>(jobs.size());
        for (var job : jobs) {
            offers.add(delayed().offerAsync(job.payload(), job.delay(), TimeUnit.MILLISECONDS));
        }
        offers.forEach(offer -> offer.toCompletableFuture().join());
    }

    /** Stops the offering client from moving jobs. */
    @Override
    public void offered() {
        delayed.destroy();
        producer.shutdown();
    }

    @Override
    public void work(int concurrency, Handler handler) {
        var client = connect();
        RBlockingQueue<String> queue = client.getBlockingQueue("bench", StringCodec.INSTANCE);
        // A client that has this object moves due jobs.
        client.getDelayedQueue(queue);
        int threads = handler.ends() ? Math.min(concurrency, THREADS) : concurrency;
        for (int thread = 0; thread < threads; thread++) {
            new Thread(() -> consume(queue, handler)).start();
        }
    }

    private static void consume(RBlockingQueue<String> queue, Handler handler) {
        try {
            while (true) {
                handler.handle(queue.take());
                queue.poll(DRAINED).forEach(handler::handle);
            }
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    private synchronized RDelayedQueue<String> delayed() {
        if (delayed == null) {
            producer = connect();
            delayed = producer.getDelayedQueue(producer.getBlockingQueue("bench", StringCodec.INSTANCE));
        }
        return delayed;
    }

    private RedissonClient connect() {
        var config = new Config();
        config.setNettyThreads(4);
        config.useSingleServer().setAddress(url);
        return Redisson.create(config);
    }
}
