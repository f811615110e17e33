import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** Lines of whoever started this program, up to `quit`. */
final class Orders {
  private static final String QUIT = "quit";

  private final BlockingQueue<String> lines = new LinkedBlockingQueue<>();

  /** If they end without `quit`, nobody is there any more: the program ends at once, whatever it is doing. */
  Orders() {
    Thread reader = new Thread(this::read);
    reader.setDaemon(true);
    reader.start();
  }

  private void read() {
    try {
      BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
      for (String line = input.readLine(); line != null; line = input.readLine()) {
        lines.add(line);
        if (line.equals(QUIT)) {
          return;
        }
      }
    } catch (IOException broken) {
      // As good as the end.
    }
    Runtime.getRuntime().halt(1);
  }

  /** Null after the last one. */
  String next() throws InterruptedException {
    String line = lines.take();
    return line.equals(QUIT) ? null : line;
  }
}
