import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** What the benchmark or the interop suite asks for: {@code WORKLOAD key=value …}. */
record Options(
    String workload, String lib, String prefix, String name, List<String> urls, String mode, String primary,
    int tasks, int names, long ms, int grants, long holdUs, int locks, int permits, long ttlMs) {

  static Options parse(String[] arguments) {
    if (arguments.length == 0) {
      throw new IllegalArgumentException("usage: contestant WORKLOAD key=value ...");
    }
    Map<String, String> given =
        Arrays.stream(arguments)
            .skip(1)
            .map(pair -> pair.split("=", 2))
            .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
    String url = given.getOrDefault("url", "");
    String tasks = given.getOrDefault("tasks", "16");
    return new Options(
        arguments[0],
        given.getOrDefault("lib", "redisson"),
        given.getOrDefault("prefix", ""),
        given.getOrDefault("name", ""),
        List.of(given.getOrDefault("urls", url).split(",")),
        given.getOrDefault("mode", "one"),
        given.getOrDefault("primary", ""),
        Integer.parseInt(tasks),
        Integer.parseInt(given.getOrDefault("names", tasks)),
        Long.parseLong(given.getOrDefault("ms", "1000")),
        Integer.parseInt(given.getOrDefault("grants", "100")),
        Long.parseLong(given.getOrDefault("hold_us", "1000")),
        Integer.parseInt(given.getOrDefault("locks", "1")),
        Integer.parseInt(given.getOrDefault("permits", "1")),
        Long.parseLong(given.getOrDefault("ttl_ms", "30000")));
  }
}
