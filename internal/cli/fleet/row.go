package fleet

// Row is what the page shows of one agent. Times are seconds since 1970.
type Row struct {
	Name    string `json:"name"`
	State   string `json:"state"`             // in a word
	Urgency int    `json:"urgency,omitempty"` // how much it needs to be looked at
	Refused string `json:"refused,omitempty"` // why it is not let in, or not registered

	Connected bool  `json:"connected,omitempty"`
	Since     int64 `json:"since,omitempty"` // of that

	Applications int64  `json:"applications"`
	Diverged     int64  `json:"diverged,omitempty"`
	Unacked      int64  `json:"unacked,omitempty"`   // since when the oldest change waits
	Confirmed    int64  `json:"confirmed,omitempty"` // when both sides were last known to be equal
	Skew         *int64 `json:"skew,omitempty"`      // seconds that the agent's clock is ahead
	Expires      int64  `json:"expires,omitempty"`   // of the last certificate that it was given
	Version      string `json:"version,omitempty"`

	// What a row shows when it is opened.
	Mode        string      `json:"mode,omitempty"`
	Mapping     string      `json:"mapping,omitempty"`
	Namespace   string      `json:"namespace,omitempty"`
	Kinds       string      `json:"kinds,omitempty"`
	Labels      string      `json:"labels,omitempty"`
	Shared      bool        `json:"shared,omitempty"`
	Created     int64       `json:"created,omitempty"`
	Principal   string      `json:"principal,omitempty"`
	Protocol    string      `json:"protocol,omitempty"`
	Cluster     string      `json:"cluster,omitempty"`
	Fingerprint string      `json:"fingerprint,omitempty"`
	Held        []Held      `json:"held,omitempty"`
	Pending     string      `json:"pending,omitempty"` // counts of what waits in the session
	Conditions  []Condition `json:"conditions,omitempty"`
}

// Held is something that waits for a person's word.
type Held struct {
	What string `json:"what"`
	Why  string `json:"why,omitempty"`
	ID   string `json:"id,omitempty"` // to confirm it with; if empty, it cannot be confirmed
}

// Condition is what the principal has to say about something.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Since   int64  `json:"since,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}
