//! Signals: those that ask for an end, and the one that asks for models to be loaded anew.

#[cfg(unix)]
use anyhow::Context;
use anyhow::Result;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// Which signals are heeded: not those that were ignored when the program was started.
#[derive(Debug, Clone, Copy)]
pub struct Signals {
    /// Ctrl-C.
    pub interrupt: bool,
    /// SIGTERM.
    pub terminate: bool,
    /// SIGHUP.
    pub hang_up: bool,
}

/// What the process is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Stop.
    Stop,
    /// Load the models anew.
    Reload,
}

impl Signals {
    /// Hands on what the process is asked to do, from now on.
    ///
    /// # Errors
    /// The system refuses it.
    #[cfg(unix)]
    pub fn listen(self) -> Result<Receiver<Asked>> {
        use tokio::signal::unix::SignalKind;
        let (sender, receiver) = mpsc::channel(8);
        for (heeded, kind, asked) in [
            (self.interrupt, SignalKind::interrupt(), Asked::Stop),
            (self.terminate, SignalKind::terminate(), Asked::Stop),
            (self.hang_up, SignalKind::hangup(), Asked::Reload),
        ] {
            if heeded {
                hand_on(kind, asked, sender.clone())?;
            }
        }
        keep(sender);
        Ok(receiver)
    }

    /// The same where Ctrl-C is all there is.
    ///
    /// # Errors
    /// None.
    #[cfg(not(unix))]
    pub fn listen(self) -> Result<Receiver<Asked>> {
        let (sender, receiver) = mpsc::channel(8);
        let of_task = sender.clone();
        tokio::spawn(async move {
            while tokio::signal::ctrl_c().await.is_ok() && of_task.send(Asked::Stop).await.is_ok() {}
        });
        keep(sender);
        Ok(receiver)
    }
}

#[cfg(unix)]
fn hand_on(kind: tokio::signal::unix::SignalKind, asked: Asked, sender: Sender<Asked>) -> Result<()> {
    let mut signal = tokio::signal::unix::signal(kind).context("cannot watch for signals")?;
    tokio::spawn(async move { while signal.recv().await.is_some() && sender.send(asked).await.is_ok() {} });
    Ok(())
}

/// Where no signal is heeded, none has come.
fn keep(sender: Sender<Asked>) {
    tokio::spawn(async move { sender.closed().await });
}

/// Waits until the process is asked to stop once more.
pub async fn again(mut asked: Receiver<Asked>) {
    while asked.recv().await != Some(Asked::Stop) {}
}
