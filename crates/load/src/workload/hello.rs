//! `hello`: a connection reads a greeting, and the server ends it.

use super::kind::{Kind, Life, Properties};
use super::recorder::Recorder;
use super::shared::Shared;
use serde::{Deserialize, Serialize};
use sockdrawer::{Behaviour, Model};
use sockdrawer_catalog::hello;
use std::sync::Arc;

/// A greeting for each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello;

impl Kind for Hello {
    fn properties(&self) -> Properties {
        Properties::new("hello", Life::Short)
    }

    fn client(&self, shared: &Arc<Shared>) -> Behaviour {
        hello::Client { timeout: shared.timeout, meter: Recorder::each(shared) }.into()
    }

    fn server(&self) -> (Behaviour, Model) {
        (hello::Hello.into(), Model::Loops)
    }
}
