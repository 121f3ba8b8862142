//! The recipes by which a program that is started again as a helper knows what to build.

use super::wire::Generated;
use crate::behaviour::{Behaviour, Build, BuildLayer};
use crate::config::Config;
use crate::error::Error;
use crate::exec;
use crate::layer::proxy_header::{self, Accepts};
use crate::layer::split_options;
use crate::protocol::Recipe;
use crate::sync::OnceLock;

static LAYERS: OnceLock<Vec<(String, BuildLayer)>> = OnceLock::new();
static RECIPES: OnceLock<Vec<(String, Build)>> = OnceLock::new();

/// Sets what helpers of this program may be asked to build. The first call counts.
pub(super) fn set(recipes: &[(&str, Build)]) {
    let _ = RECIPES.set(recipes.iter().map(|(name, build)| ((*name).to_owned(), *build)).collect());
}

/// Sets the layers that helpers of this program may be asked to put around what they build. The first call counts.
pub(super) fn set_layers(layers: &[(&str, BuildLayer)]) {
    let _ = LAYERS.set(layers.iter().map(|(name, build)| ((*name).to_owned(), *build)).collect());
}

/// Returns true where a helper of this program could build it.
pub(super) fn knows(recipe: &Recipe) -> bool {
    layered(recipe).is_some_and(|(_, inner, _)| knows(&inner)) || recipe.name == exec::NAME || find(recipe).is_some()
}

/// Returns true where [`processes`] was called: a program that does not call it would start its own `main` again and again.
pub(super) fn is_ready() -> bool {
    RECIPES.get().is_some()
}

fn find(recipe: &Recipe) -> Option<Build> {
    RECIPES.get()?.iter().find(|(name, _)| *name == recipe.name).map(|(_, build)| *build)
}

/// Returns the layer around a recipe, what is within, and the layer's options.
fn layered(recipe: &Recipe) -> Option<(BuildLayer, Recipe, &[u8])> {
    let (layer, name) = recipe.name.split_once('+')?;
    let build = match layer {
        proxy_header::RECIPE => |behaviour: Behaviour, options: &[u8]| Ok(behaviour.layered(Accepts::from_options(options)?)),
        _ => LAYERS.get()?.iter().find(|(name, _)| name == layer)?.1,
    };
    let (options, inner) = split_options(&recipe.options).ok()?;
    Some((build, Recipe { name: name.to_owned(), options: inner.to_vec() }, options))
}

/// Builds what the recipe says. Runs user code.
pub(super) fn build(recipe: &Recipe) -> Result<Behaviour, String> {
    if let Some((around, inner, options)) = layered(recipe) {
        return around(build(&inner)?, options).map_err(|error| error.to_string());
    }
    if recipe.name == exec::NAME {
        return exec::from_options(&recipe.options).ok_or_else(|| "the recipe of a program names none".to_owned());
    }
    let build = find(recipe).ok_or_else(|| format!("no recipe is named `{}`", recipe.name))?;
    build(&recipe.options).map_err(|error| error.to_string())
}

/// Returns what a helper builds, by what the configuration asks for.
pub(super) fn generated(config: &Config, id: u32) -> Result<Generated, Error> {
    let refuse = |what, remedy| Err(Error::NoRecipe { model: config.model, what, remedy });
    let Some(recipe) = config.behaviour.service().recipe() else {
        return refuse("run a service without a recipe", "implement Service::recipe, or use the model loops");
    };
    if !is_ready() {
        return refuse("start a helper", "call sockdrawer::processes first of all in main, or use the model loops");
    }
    if !knows(&recipe) {
        return refuse("build a service of an unknown recipe", "name it in the call of sockdrawer::processes");
    }
    Ok(Generated { id, recipe, settings: config.settings.clone() })
}
