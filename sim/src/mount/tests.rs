//! What a node sees of what another does, class by class.
