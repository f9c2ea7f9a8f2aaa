import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.BufferedWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;

/** Writes changes as JSON lines into a file until there are as many as asked for: file, count, then key=value. */
public class Capture {
    public static void main(String[] arguments) throws Exception {
        long wanted = Long.parseLong(arguments[1]);
        Properties properties = new Properties();
        for (int at = 2; at < arguments.length; at++) {
            String[] pair = arguments[at].split("=", 2);
            properties.setProperty(pair[0], pair[1]);
        }
        CountDownLatch done = new CountDownLatch(1);
        long[] count = {0};
        try (BufferedWriter out = Files.newBufferedWriter(Path.of(arguments[0]))) {
            DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                .using(properties)
                .notifying((records, committer) -> {
                    for (ChangeEvent<String, String> record : records) {
                        if (record.value() != null) {
                            try {
                                out.write(record.value());
                                out.newLine();
                            } catch (java.io.IOException error) {
                                throw new java.io.UncheckedIOException(error);
                            }
                            count[0]++;
                        }
                        committer.markProcessed(record);
                    }
                    committer.markBatchFinished();
                    if (count[0] >= wanted) {
                        done.countDown();
                    }
                })
                .using((success, message, error) -> {
                    if (!success) {
                        System.err.println(message + " " + error);
                        System.exit(1);
                    }
                })
                .build();
            Executors.newSingleThreadExecutor().execute(engine);
            done.await();
            out.flush();
            System.out.println(count[0]);
            System.exit(0); // closing the engine waits for what does not belong to the work
        }
    }
}
