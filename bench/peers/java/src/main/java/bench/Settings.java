package bench;

/** The settings of a run, from the environment. */
record Settings(String url, int count, int concurrency, int rate, boolean shuffled, String payload) {
    static Settings fromEnv() {
        return new Settings(
                variable("BENCH_URL", "redis://127.0.0.1:6379"),
                Integer.parseInt(variable("BENCH_COUNT", "1000")),
                Integer.parseInt(variable("BENCH_CONCURRENCY", "100")),
                Integer.parseInt(variable("BENCH_RATE", "1000")),
                variable("BENCH_ORDER", "due").equals("shuffled"),
                variable("BENCH_PAYLOAD", "{\"merchant\":\"m-1\",\"order\":\"o-1\",\"amount\":1}"));
    }

    Settings withCount(int count) {
        return new Settings(url, count, concurrency, rate, shuffled, payload);
    }

    private static String variable(String name, String otherwise) {
        var value = System.getenv(name);
        return value == null ? otherwise : value;
    }
}
