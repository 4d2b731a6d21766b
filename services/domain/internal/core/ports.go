package core

// Store keeps the domain.
type Store interface {
	Reads
}

// Drivers are the deploy drivers of the installation.
type Drivers interface {
	// All is every driver, by reference.
	All() []Driver
}

// Flows reads flow definitions.
type Flows interface{}
