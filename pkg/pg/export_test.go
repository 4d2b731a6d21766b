package pg

// PoolConfig is what Open connects with.
var PoolConfig = poolConfig
