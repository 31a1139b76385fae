package bench;

/** {@code Main <peer> <measure>}: runs a measure, and prints the result as the last line. */
public final class Main {
    private static final int HAS_NOT = 78;

    private Main() {}

    public static void main(String[] args) {
        try {
            var result = run(args);
            if (result != null) {
                System.out.println(result);
            }
            System.out.flush();
            // Workers continue: do not wait for them.
            Runtime.getRuntime().halt(result == null ? HAS_NOT : 0);
        } catch (Exception failure) {
            // After a failure, the threads of workers would keep the process alive.
            System.err.println(failure);
            Runtime.getRuntime().halt(1);
        }
    }

    /** Returns the line to print; null if there is no such measure. */
    private static String run(String[] args) throws Exception {
        var settings = Settings.fromEnv();
        var name = args.length == 2 ? args[1] : "";
        var peer = switch (args[0]) {
            case "redisson" -> new RedissonPeer(settings.url());
            case "spring" -> new SpringPeer(settings.url());
            default -> throw new IllegalArgumentException(args[0]);
        };
        var measures = new Measures(peer, settings);
        return switch (name) {
            case "describe" -> peer.describe();
            case "throughput" -> measures.throughput();
            case "lateness" -> measures.lateness();
            case "arm" -> measures.arm();
            case "lives" -> measures.lives();
            case "bytes" -> measures.bytes();
            case "idle" -> measures.idle();
            case "kill" -> measures.kill();
            case "kill_again" -> measures.killAgain();
            default -> null;
        };
    }
}
