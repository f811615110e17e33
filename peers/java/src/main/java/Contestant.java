import org.redisson.Redisson;

/** Redisson's locks as contestants of the benchmark. A task is a thread. {@link Interop} is for locks that are shared with others. */
public final class Contestant {
  public static void main(String[] arguments) {
    // Warnings would come from servers that the benchmark has stopped.
    System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "error");
    try {
      run(Options.parse(arguments));
      System.exit(0);
    } catch (Exception error) {
      System.err.println(error);
      System.exit(1);
    }
  }

  private static void run(Options options) throws Exception {
    Library.check(options);
    if (options.workload().equals("version")) {
      String version = Redisson.class.getPackage().getImplementationVersion();
      System.out.printf(
          "{\"library\":\"%s\",\"version\":\"%s\",\"language\":\"java %s\"}%n",
          options.lib(), version, Runtime.version().feature());
      return;
    }
    if (options.workload().equals("interop")) {
      Interop.serve(options);
      return;
    }
    String unsupported = Library.unsupported(options);
    if (unsupported != null) {
      System.out.printf("{\"unsupported\":\"%s\"}%n", unsupported);
      return;
    }
    Orders orders = new Orders();
    Library library = new Library(options);
    Workloads workloads = new Workloads(library, options);
    workloads.prepare();
    System.out.println("ready");
    for (String line = orders.next(); line != null; line = orders.next()) {
      switch (line) {
        case "round" -> System.out.println(workloads.round());
        case "release" -> System.out.println(workloads.release());
        default -> throw new IllegalArgumentException("unknown line \"" + line + "\"");
      }
    }
    workloads.release();
    library.close();
  }
}
