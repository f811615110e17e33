//! Contexts of any type, written as JSON.

use serde::{Serialize, de::DeserializeOwned};

use super::{Deadlines, Due};
use crate::{
    engine::deadlines::{Deadline, DeadlineId, DueTime},
    error::{Error, Result},
    text::{no_json, quoted},
};

impl Deadlines {
    /// Sets a deadline with a context as JSON, for [`Due::context_as`].
    ///
    /// # Cancel safety, errors
    /// As [`Deadlines::set`].
    pub async fn set_json(
        &self,
        id: impl Into<DeadlineId>,
        due: impl Into<DueTime>,
        context: &impl Serialize,
    ) -> Result<()> {
        let deadline = Deadline::new(id, due).json(context)?;
        self.set_many(&[deadline]).await
    }
}

impl Deadline {
    /// The context that its claimer gets, as JSON, for [`Due::context_as`].
    ///
    /// # Errors
    /// `invalid` for a value that has no JSON.
    pub fn json(self, context: &impl Serialize) -> Result<Self> {
        let what = || format!("context of the deadline \"{}\"", quoted(&self.id));
        let json = serde_json::to_vec(context).map_err(|error| no_json(what(), &error))?;
        Ok(self.context(json))
    }
}

impl Due {
    /// What was given with it as JSON.
    ///
    /// # Errors
    /// `invalid` when it is not the JSON of such a value.
    pub fn context_as<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let Some(context) = self.context() else { return Ok(None) };
        serde_json::from_slice(context).map(Some).map_err(|error| {
            Error::invalid(
                format!("context of the deadline \"{}\"", self.id()),
                error.to_string(),
                format!("the JSON of a {}", std::any::type_name::<T>()),
            )
        })
    }
}
