//! A lock that a majority of independent servers holds. Starts three of them if redis-server is installed.
//! `cargo run --example quorum`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::process::{Child, Command, Stdio};

use leasehold::Leasehold;

fn start(port: u16) -> std::io::Result<Child> {
    let port = port.to_string();
    Command::new("redis-server")
        .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .stdout(Stdio::null())
        .spawn()
}

fn free_port() -> std::io::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ports = [free_port()?, free_port()?, free_port()?];
    let mut servers = Vec::new();
    for port in ports {
        match start(port) {
            Ok(server) => servers.push(server),
            Err(error) => {
                println!("skipped: redis-server cannot be started: {error}");
                return Ok(());
            }
        }
    }
    let done = hold(ports, &mut servers).await;
    for server in &mut servers {
        server.kill().and_then(|()| server.wait())?;
    }
    done
}

async fn hold(ports: [u16; 3], servers: &mut [Child]) -> Result<(), Box<dyn std::error::Error>> {
    let nodes = ports.map(|port| format!("127.0.0.1:{port}")).join(",");
    let leases = Leasehold::connect_lazy(format!("redlock://{nodes}"))?;
    // Once, when the servers are new. A server that lost its data is readmitted by itself, after the longest ttl.
    while let Err(error) = leases.quorum()?.admit_new().await {
        println!("not all are up yet: {error}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let guard = leases.lock("deal:42").keep_alive().acquire().await?;
    println!("a majority granted fence {}", guard.fence());

    // Any minority may fail.
    servers[0].kill().and_then(|()| servers[0].wait())?;
    guard.extend().await?;
    assert!(guard.is_held());
    assert!(guard.release().await?.was_held());
    Ok(leases.close().await?)
}
