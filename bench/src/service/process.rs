//! The service as a process of its own, so that its memory and its processor time are its own, too.

use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::Duration,
};

use leasehold::Leasehold;
use leasehold_server::Server;

use crate::Failure;

/// Rare enough for a measurement to be over before the next look.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Serves a store until its input ends.
pub(crate) fn serve(store: &str) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let leases = Leasehold::connect(store).await?;
        let server =
            Server::builder(leases).listen("127.0.0.1:0".parse()?).poll_every(LOOK_EVERY).start().await?;
        writeln!(std::io::stdout(), "{}", server.address())?;
        let over = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
        over.await??;
        server.stop().await;
        Ok(())
    })
}

pub(super) struct Service {
    child: Child,
    pub(super) address: SocketAddr,
}

impl Service {
    pub(super) async fn start(store: &str) -> Result<Self, Failure> {
        let mut serve = Command::new(std::env::current_exe()?);
        serve.args(["serve", store]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = serve.spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("stdout was piped")?).read_line(&mut line)?;
        Ok(Self { child, address: line.trim().parse()? })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The end of its input ends it; a service that hangs must not hold the benchmark up.
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
