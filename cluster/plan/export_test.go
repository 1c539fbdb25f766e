package plan

// The causes of a plan that tests look for.
const (
	ReplanJoin      = replanJoin
	ReplanRebalance = replanRebalance
)
