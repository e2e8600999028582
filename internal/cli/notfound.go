package cli

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// notFound reports whether the API server answered that an object does not exist. A 404 without a Status may come from a
// proxy or a load balancer and does not count.
func notFound(err error) bool { return apierrors.IsNotFound(err) && !foreign(err) }

// foreign reports whether a response had no Status, so that it may not come from the API server.
func foreign(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
