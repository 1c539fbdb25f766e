package access

import (
	"errors"
	"fmt"
	"math"
)

// rightsClaim is the claim of a JWT that holds the rights of the subject.
const rightsClaim = "streamer"

var errRights = errors.New("the token's claim \"streamer\" is missing or not an object")

// ofToken returns the identity of a verified JWT.
func ofToken(t verifiedToken) (*Identity, error) {
	i := &Identity{Name: t.Subject, Expires: t.Expires, key: jwtKey + t.Subject}
	rights, ok := t.Claims[rightsClaim].(map[string]any)
	if !ok {
		return nil, errRights
	}
	if err := errors.Join(i.readRights(rights), i.check()); err != nil {
		return nil, fmt.Errorf("the token's claim %q: %w", rightsClaim, err)
	}
	return i, nil
}

// readRights parses the claim. Unknown keys are rejected, because a misspelled limit would be no
// limit.
func (i *Identity) readRights(rights map[string]any) error {
	for name, value := range rights {
		limit := i.limit(name)
		switch {
		case name == "namespaces":
			list, ok := value.([]any)
			if !ok {
				return errors.New("namespaces must be a list")
			}
			for _, v := range list {
				pattern, ok := v.(string)
				if !ok {
					return errors.New("namespaces must be a list of strings")
				}
				i.Namespaces = append(i.Namespaces, pattern)
			}
		case limit != nil:
			n, ok := value.(float64)
			isWhole := ok && n == math.Trunc(n)
			if !isWhole || n < 0 || n > maxLimit {
				return fmt.Errorf("%s must be a whole number from 0 (none) to %d", name, maxLimit)
			}
			*limit = int(n)
		default:
			return fmt.Errorf("unknown key %.64q", name)
		}
	}
	return nil
}

// A limit is one of an identity's limits, with its name in files and tokens.
type limit struct {
	name  string
	value *int
}

// limits returns all limits of an identity.
func (i *Identity) limits() []limit {
	return []limit{
		{"max_sessions", &i.MaxSessions},
		{"max_connections", &i.MaxConnections},
		{"max_notices", &i.MaxNotices},
		{"max_subscriptions", &i.MaxSubscriptions},
		{"starts_per_second", &i.StartsPerSecond},
		{"events_per_second", &i.EventsPerSecond},
		{"bytes_per_second", &i.BytesPerSecond},
	}
}

// limit returns the limit with a name, nil if there is none.
func (i *Identity) limit(name string) *int {
	for _, l := range i.limits() {
		if l.name == name {
			return l.value
		}
	}
	return nil
}
