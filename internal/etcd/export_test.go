package etcd

// First returns the endpoint that the next request goes to, if it is connected.
func (c *Client) First() string { return c.endpoints.choose(nil).address }
