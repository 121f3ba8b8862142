//! Kinds of change that the server's model does not have. Each is tried once, before there are clients; kinds that the model refuses by
//! name are left out of the trial.

use super::kind::Kind;
use sockdrawer::{Config, Error, Pool, Selector};

/// A small change of a kind.
type Sample = (Kind, fn(&mut Config));

const SAMPLES: [Sample; 6] = [
    (Kind::Settings, |config| config.settings.max_partial += 1),
    (Kind::AcceptedOptions, |config| config.settings.options.nodelay = !config.settings.options.nodelay),
    (Kind::Loops, |config| config.loops += 1),
    (Kind::Workers, |config| config.workers += 1),
    (Kind::Limit, |config| config.limit = config.limit.map(|limit| limit + 1)),
    (Kind::Capacity, |config| config.capacity += 1),
];

/// Returns the absent kinds, each with the model's refusal.
pub(crate) fn absent(server: &Pool) -> Result<Vec<(Kind, String)>, Error> {
    let config = server.config();
    let mut absent = Vec::new();
    for (kind, sample) in SAMPLES {
        let mut wanted = server.config();
        sample(&mut wanted);
        if let Some(word) = refusal(server.reconfigure(wanted))? {
            absent.push((kind, word));
        }
        // Restores the configuration, whatever was changed.
        server.reconfigure(config.clone().unconditional())?;
    }
    if let Some(word) = refusal(server.notify(&Selector::All, *b"a note"))? {
        absent.push((Kind::Notify, word));
    }
    Ok(absent)
}

fn refusal<T>(asked: Result<T, Error>) -> Result<Option<String>, Error> {
    match asked {
        Ok(_) => Ok(None),
        Err(refused @ Error::NotInModel { .. }) => Ok(Some(refused.to_string())),
        Err(other) => Err(other),
    }
}
