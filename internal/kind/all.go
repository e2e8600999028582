package kind

// All returns the kinds in the order in which they depend on each other. A new kind is one file, and one line here.
func All() []Kind {
	return []Kind{
		AppProjectKind{},
		RepositoryKind{},
		GPGKeyKind{},
		SettingsKind{},
		ApplicationKind{},
		ChildKind{},
		StatusKind{},
		CommandKind{},
	}
}
