import com.unboundid.ldap.sdk.BindRequest;
import com.unboundid.ldap.sdk.ExtendedResult;
import com.unboundid.ldap.sdk.LDAPConnection;
import com.unboundid.ldap.sdk.LDAPException;
import com.unboundid.ldap.sdk.PLAINBindRequest;
import com.unboundid.ldap.sdk.ResultCode;
import com.unboundid.ldap.sdk.SCRAMSHA1BindRequest;
import com.unboundid.ldap.sdk.SCRAMSHA256BindRequest;
import com.unboundid.ldap.sdk.SCRAMSHA512BindRequest;
import com.unboundid.ldap.sdk.SimpleBindRequest;
import com.unboundid.ldap.sdk.extensions.StartTLSExtendedRequest;
import com.unboundid.ldap.sdk.extensions.WhoAmIExtendedRequest;
import com.unboundid.ldap.sdk.extensions.WhoAmIExtendedResult;
import com.unboundid.util.ssl.SSLUtil;
import com.unboundid.util.ssl.TrustStoreTrustManager;
import java.util.function.Function;

/** UnboundID's LDAP SDK against a directory that `run` has made: StartTLS, ldaps, PLAIN and SCRAM. */
public class Sdk {
    static final String ANN = "uid=ann,ou=people,dc=example,dc=com";
    static final String PASSWORD = "ann's password";

    static void bind(LDAPConnection connection, String name, Function<String, BindRequest> request) throws Exception {
        try {
            connection.bind(request.apply("wrong"));
            throw new AssertionError(name + " takes a wrong password");
        } catch (LDAPException expected) {
            if (expected.getResultCode() != ResultCode.INVALID_CREDENTIALS) {
                throw expected;
            }
        }
        connection.bind(request.apply(PASSWORD));
        WhoAmIExtendedResult who =
                (WhoAmIExtendedResult) connection.processExtendedOperation(new WhoAmIExtendedRequest());
        if (!("dn:" + ANN).equals(who.getAuthorizationID())) {
            throw new AssertionError(name + ": " + who.getAuthorizationID());
        }
        System.out.println(name);
    }

    public static void main(String[] arguments) throws Exception {
        SSLUtil ssl = new SSLUtil(new TrustStoreTrustManager(arguments[2], "changeit".toCharArray(), "PKCS12", true));
        LDAPConnection ldaps =
                new LDAPConnection(ssl.createSSLSocketFactory(), "localhost", Integer.parseInt(arguments[1]));
        LDAPConnection started = new LDAPConnection("localhost", Integer.parseInt(arguments[0]));
        ExtendedResult tls = started.processExtendedOperation(new StartTLSExtendedRequest(ssl.createSSLContext()));
        if (tls.getResultCode() != ResultCode.SUCCESS) {
            throw new AssertionError(tls);
        }
        bind(ldaps, "simple bind over ldaps", password -> new SimpleBindRequest(ANN, password));
        bind(started, "simple bind over StartTLS", password -> new SimpleBindRequest(ANN, password));
        bind(started, "SASL PLAIN", password -> new PLAINBindRequest("ann", password));
        bind(started, "SASL SCRAM-SHA-1", password -> new SCRAMSHA1BindRequest("ann", password));
        bind(started, "SASL SCRAM-SHA-256", password -> new SCRAMSHA256BindRequest("ann", password));
        bind(ldaps, "SASL SCRAM-SHA-512", password -> new SCRAMSHA512BindRequest("ann", password));
    }
}
