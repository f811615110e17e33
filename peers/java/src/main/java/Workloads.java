import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntPredicate;
import java.util.stream.LongStream;

/** What is measured. Each round returns one JSON object. */
final class Workloads {
  /** So many that the compiler of the JVM is done with the path, or as many as fit into the time. */
  private static final int WARM_UP_CYCLES = 10_000;
  private static final long WARM_UP_NS_MAX = TimeUnit.SECONDS.toNanos(20);

  private final Library library;
  private final Options options;
  /** They stay for the next round, and with them what is known about their processor time. */
  private final ExecutorService threads;
  /** What releases the locks of `keep` and `hold`, and the threads that have taken them: only these may release them. */
  private final List<Future<Runnable>> held = new ArrayList<>();
  private final List<ExecutorService> holders = new ArrayList<>();

  Workloads(Library library, Options options) {
    this.library = library;
    this.options = options;
    threads = Executors.newFixedThreadPool(options.tasks());
  }

  void prepare() throws Exception {
    switch (options.workload()) {
      case "cycle" -> warmUp();
      case "keep", "hold" -> takeAll();
      case "contend" -> {}
      default -> throw new IllegalArgumentException("unknown workload \"" + options.workload() + "\"");
    }
  }

  String round() throws Exception {
    switch (options.workload()) {
      case "cycle":
        return cycle();
      case "contend":
        return contend();
      case "keep":
        Thread.sleep(options.ms());
      default:
        return "{\"held\":%d}".formatted(held.size());
    }
  }

  /** Each thread locks and releases a name, by default one of its own, for as long as `more` says. */
  private double cycles(Tally seen, IntPredicate more) throws InterruptedException {
    return seen.concurrently(
        threads,
        options.tasks(),
        number -> {
          String name = options.prefix() + number % options.names();
          LongStream.Builder ns = LongStream.builder();
          for (int done = 0; more.test(done); done++) {
            long begin = System.nanoTime();
            try {
              library.take(name).run();
              ns.add(System.nanoTime() - begin);
            } catch (RuntimeException error) {
              seen.fail(error);
            }
          }
          seen.add(ns.build().toArray());
        });
  }

  private void warmUp() throws InterruptedException {
    long begin = System.nanoTime();
    Tally seen = new Tally();
    int each = WARM_UP_CYCLES / options.tasks() + 1;
    cycles(seen, done -> done < each && System.nanoTime() - begin < WARM_UP_NS_MAX);
    if (seen.errors > 0) {
      throw new IllegalStateException(seen.errors + " cycles failed while warming up");
    }
  }

  private String cycle() throws InterruptedException {
    long begin = System.nanoTime();
    Tally seen = new Tally();
    double seconds = cycles(seen, done -> System.nanoTime() - begin < options.ms() * 1_000_000);
    return json(
        "{\"cycles\":%d,\"seconds\":%f,\"p50_us\":%f,\"p99_us\":%f,\"errors\":%d}",
        seen.count(), seconds, seen.percentile(0.5), seen.percentile(0.99), seen.errors);
  }

  /** All threads want the same name, until the process has had its share of grants. */
  private String contend() throws InterruptedException {
    AtomicInteger begun = new AtomicInteger();
    Tally seen = new Tally();
    double seconds =
        seen.concurrently(
            threads,
            options.tasks(),
            number -> {
              while (begun.incrementAndGet() <= options.grants()) {
                long begin = System.nanoTime();
                Runnable release = library.take(options.prefix() + options.name());
                long granted = System.nanoTime();
                Instant now = Instant.now();
                double at = now.getEpochSecond() + now.getNano() / 1e9;
                TimeUnit.MICROSECONDS.sleep(options.holdUs());
                long heldNs = System.nanoTime() - granted;
                release.run();
                seen.granted(at, granted - begin, heldNs);
              }
            });
    return json(
        "{\"grants\":%d,\"seconds\":%f,\"hold_seconds\":%f,\"waits_us\":[%f,%f,%f],\"first_s\":%f,\"last_s\":%f,\"errors\":%d}",
        seen.count(), seconds, seen.heldNs / 1e9,
        seen.percentile(0.5), seen.percentile(0.99), seen.percentile(1),
        seen.first, seen.last, seen.errors);
  }

  private void takeAll() throws Exception {
    for (int i = 0; i < options.tasks(); i++) {
      holders.add(Executors.newSingleThreadExecutor());
    }
    for (int i = 0; i < options.locks(); i++) {
      String name = options.prefix() + i;
      held.add(holder(i).submit(() -> library.take(name)));
    }
    for (Future<Runnable> release : held) {
      release.get();
    }
  }

  private ExecutorService holder(int number) {
    return holders.get(number % holders.size());
  }

  String release() throws Exception {
    List<Future<?>> releases = new ArrayList<>();
    for (int i = 0; i < held.size(); i++) {
      Runnable release = held.get(i).get();
      releases.add(holder(i).submit(release));
    }
    held.clear();
    for (Future<?> release : releases) {
      release.get();
    }
    return "{\"released\":%d}".formatted(releases.size());
  }

  private static String json(String format, Object... values) {
    return String.format(Locale.ROOT, format, values);
  }
}
