package bench;

import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.stream.IntStream;

import org.springframework.data.redis.connection.Message;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.RedisCallback;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.listener.KeyExpirationEventMessageListener;
import org.springframework.data.redis.listener.RedisMessageListenerContainer;

/**
 * Spring Data Redis: its listener for keys that expire.
 *
 * <p>The event names the key; the value is gone by then. Events are lost without a listener, so it
 * runs before the first key expires, for throughput too. By default each message gets a thread of its
 * own; one thread for all is three times faster. See
 * <a href="https://docs.spring.io/spring-data/redis/reference/redis/pubsub.html">its documentation</a>.
 */
final class SpringPeer implements Peer {
    private static final int WARM = 20_000;
    private static final long WARM_MAX_WAIT_S = 20;
    /** The server finds some 40,000 keys a second. */
    private static final int AT_MOST = 50_000;

    private final LettuceConnectionFactory connections;
    private final StringRedisTemplate template;

    SpringPeer(String url) {
        var uri = URI.create(url);
        connections = new LettuceConnectionFactory(new RedisStandaloneConfiguration(uri.getHost(), uri.getPort()));
        connections.afterPropertiesSet();
        connections.start();
        template = new StringRedisTemplate(connections);
    }

    @Override
    public String describe() {
        return """
                {"name":"Spring Data Redis, expiration listener","version":"4.1.1","language":"Java",\
                "settings":"Lettuce 7.5.2, warmed up with 20,000 keys; SET with PX, notify-keyspace-events Ex, \
                KeyExpirationEventMessageListener with one thread (its default, a thread a message, is slower); throughput \
                with 50,000 keys that expire within 200 ms, as the server finds them; bulk is a pipeline of 1,000 SETs",\
                "survives_a_crash":false,\
                "leaves_out":"the payload (gone when the event comes), acknowledgements, retries, recovery of \
                lost events; every listener receives every event; one handler at a time"}""";
    }

    @Override
    public boolean losesJobsWithoutWorker() {
        return true;
    }

    @Override
    public boolean hasBulk() {
        return true;
    }

    @Override
    public int together() {
        return 1_000;
    }

    @Override
    public int atMost(boolean shuffled) {
        return AT_MOST;
    }

    @Override
    public void warmUp() throws Exception {
        var all = new CountDownLatch(WARM);
        var container = listen(1, key -> all.countDown());
        long due = System.currentTimeMillis() + 3_000;
        for (int from = 0; from < WARM; from += together()) {
            int first = from;
            offerBulk(IntStream.range(first, first + together())
                    .mapToObj(number -> new Job(number, due, "warm")).toList());
        }
        if (!all.await(WARM_MAX_WAIT_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(all.getCount() + " keys of the warm-up did not expire in time");
        }
        container.destroy();
    }

    @Override
    public void offer(Job job) {
        template.opsForValue().set(key(job), job.payload(), Duration.ofMillis(job.delay()));
    }

    @Override
    public void offerBulk(List<Job> jobs) {
        template.executePipelined((RedisCallback<Object>) connection -> {
            for (var job : jobs) {
                connection.stringCommands().pSetEx(bytes(key(job)), job.delay(), bytes(job.payload()));
            }
            return null;
        });
    }

    @Override
    public void offered() {}

    @Override
    public void work(int concurrency, Handler handler) {
        listen(handler.ends() ? 1 : concurrency, key -> handler.handleDue(due(key)));
    }

    private RedisMessageListenerContainer listen(int threads, Consumer<String> onKey) {
        var container = new RedisMessageListenerContainer();
        container.setConnectionFactory(connections);
        container.setTaskExecutor(Executors.newFixedThreadPool(threads));
        container.afterPropertiesSet();
        var listener = new KeyExpirationEventMessageListener(container) {
            @Override
            public void onMessage(Message message, byte[] pattern) {
                onKey.accept(new String(message.getBody(), StandardCharsets.UTF_8));
            }
        };
        listener.setKeyspaceNotificationsConfigParameter("Ex");
        listener.init();
        container.start();
        return container;
    }

    private static String key(Job job) {
        return "job:" + job.number() + ":" + job.due();
    }

    private static long due(String key) {
        return Long.parseLong(key.substring(key.lastIndexOf(':') + 1));
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
