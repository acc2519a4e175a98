//! The OATH-LDAP schema, as OpenLDAP's overlay brings it: attribute types below 1.3.6.1.4.1.5427.1.389.4226.4, object classes below
//! 1.3.6.1.4.1.5427.1.389.4226.6.

pub(super) const DEFINITIONS: &str = "\
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.1 NAME 'oathSecret' EQUALITY octetStringMatch SUBSTR \
    octetStringSubstringsMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 SINGLE-VALUE X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.2 NAME 'oathTokenSerialNumber' EQUALITY caseIgnoreMatch SUBSTR \
    caseIgnoreSubstringsMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.44{64} SINGLE-VALUE X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.3 NAME 'oathTokenIdentifier' EQUALITY caseIgnoreMatch SYNTAX \
    1.3.6.1.4.1.1466.115.121.1.15{256} SINGLE-VALUE X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.4 NAME 'oathParamsEntry' SUP distinguishedName SINGLE-VALUE \
    X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.4.1 NAME 'oathTOTPTimeStepPeriod' EQUALITY integerMatch \
    ORDERING integerOrderingMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 SINGLE-VALUE X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.5 NAME 'oathOTPLength' EQUALITY integerMatch ORDERING \
    integerOrderingMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 SINGLE-VALUE X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.5.1 NAME 'oathHOTPParams' SUP oathParamsEntry SINGLE-VALUE \
    X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.5.2 NAME 'oathTOTPParams' SUP oathParamsEntry SINGLE-VALUE \
    X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.6 NAME 'oathHMACAlgorithm' EQUALITY objectIdentifierMatch \
    SYNTAX 1.3.6.1.4.1.1466.115.121.1.38 SINGLE-VALUE X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.7 NAME 'oathTimestamp' EQUALITY generalizedTimeMatch ORDERING \
    generalizedTimeOrderingMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.24 SINGLE-VALUE X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.7.1 NAME 'oathLastFailure' SUP oathTimestamp SINGLE-VALUE \
    X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.7.2 NAME 'oathLastLogin' SUP oathTimestamp SINGLE-VALUE \
    X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.7.3 NAME 'oathSecretTime' SUP oathTimestamp SINGLE-VALUE \
    X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.8 NAME 'oathSecretMaxAge' EQUALITY integerMatch ORDERING \
    integerOrderingMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 SINGLE-VALUE X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.9 NAME 'oathToken' SUP distinguishedName SINGLE-VALUE X-ORIGIN \
    'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.9.1 NAME 'oathHOTPToken' SUP oathToken SINGLE-VALUE X-ORIGIN \
    'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.9.2 NAME 'oathTOTPToken' SUP oathToken SINGLE-VALUE X-ORIGIN \
    'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.10 NAME 'oathCounter' EQUALITY integerMatch ORDERING \
    integerOrderingMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 SINGLE-VALUE X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.10.1 NAME 'oathFailureCount' SUP oathCounter SINGLE-VALUE \
    X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.10.2 NAME 'oathHOTPCounter' SUP oathCounter SINGLE-VALUE \
    X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.10.3 NAME 'oathHOTPLookAhead' SUP oathCounter SINGLE-VALUE \
    X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.10.5 NAME 'oathThrottleLimit' SUP oathCounter SINGLE-VALUE \
    X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.10.6 NAME 'oathTOTPLastTimeStep' SUP oathCounter SINGLE-VALUE \
    X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.10.7 NAME 'oathMaxUsageCount' SUP oathCounter SINGLE-VALUE \
    X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.10.8 NAME 'oathTOTPTimeStepWindow' SUP oathCounter \
    SINGLE-VALUE X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.10.9 NAME 'oathTOTPTimeStepDrift' SUP oathCounter SINGLE-VALUE \
    X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.11 NAME 'oathSecretLength' EQUALITY integerMatch ORDERING \
    integerOrderingMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 SINGLE-VALUE X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.12 NAME 'oathEncKey' EQUALITY caseIgnoreMatch SUBSTR \
    caseIgnoreSubstringsMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 SINGLE-VALUE X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.13 NAME 'oathResultCode' EQUALITY integerMatch ORDERING \
    integerOrderingMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 SINGLE-VALUE X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.13.1 NAME 'oathSuccessResultCode' SUP oathResultCode X-ORIGIN \
    'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.13.2 NAME 'oathFailureResultCode' SUP oathResultCode X-ORIGIN \
    'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.14 NAME 'oathTokenPIN' EQUALITY caseIgnoreMatch SUBSTR \
    caseIgnoreSubstringsMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 SINGLE-VALUE X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.15 NAME 'oathMessage' EQUALITY caseIgnoreMatch SUBSTR \
    caseIgnoreSubstringsMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15{1024} SINGLE-VALUE X-ORIGIN 'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.15.1 NAME 'oathSuccessMessage' SUP oathMessage X-ORIGIN \
    'OATH-LDAP' )
attributetype ( 1.3.6.1.4.1.5427.1.389.4226.4.15.2 NAME 'oathFailureMessage' SUP oathMessage X-ORIGIN \
    'OATH-LDAP' )
objectclass ( 1.3.6.1.4.1.5427.1.389.4226.6.1 NAME 'oathUser' ABSTRACT X-ORIGIN 'OATH-LDAP' )
objectclass ( 1.3.6.1.4.1.5427.1.389.4226.6.1.1 NAME 'oathHOTPUser' SUP oathUser AUXILIARY MAY oathHOTPToken \
    X-ORIGIN 'OATH-LDAP' )
objectclass ( 1.3.6.1.4.1.5427.1.389.4226.6.1.2 NAME 'oathTOTPUser' SUP oathUser AUXILIARY MUST \
    oathTOTPToken X-ORIGIN 'OATH-LDAP' )
objectclass ( 1.3.6.1.4.1.5427.1.389.4226.6.2 NAME 'oathParams' ABSTRACT MUST ( oathOTPLength $ \
    oathHMACAlgorithm ) MAY ( oathSecretMaxAge $ oathSecretLength $ oathMaxUsageCount $ oathThrottleLimit $ \
    oathEncKey $ oathSuccessResultCode $ oathSuccessMessage $ oathFailureResultCode $ oathFailureMessage ) \
    X-ORIGIN 'OATH-LDAP' )
objectclass ( 1.3.6.1.4.1.5427.1.389.4226.6.2.1 NAME 'oathHOTPParams' SUP oathParams AUXILIARY MUST \
    oathHOTPLookAhead X-ORIGIN 'OATH-LDAP' )
objectclass ( 1.3.6.1.4.1.5427.1.389.4226.6.2.2 NAME 'oathTOTPParams' SUP oathParams AUXILIARY MUST \
    oathTOTPTimeStepPeriod MAY oathTOTPTimeStepWindow X-ORIGIN 'OATH-LDAP' )
objectclass ( 1.3.6.1.4.1.5427.1.389.4226.6.3 NAME 'oathToken' ABSTRACT MAY ( oathSecret $ oathSecretTime $ \
    oathLastLogin $ oathFailureCount $ oathLastFailure $ oathTokenSerialNumber $ oathTokenIdentifier $ \
    oathTokenPIN ) X-ORIGIN 'OATH-LDAP' )
objectclass ( 1.3.6.1.4.1.5427.1.389.4226.6.3.1 NAME 'oathHOTPToken' SUP oathToken AUXILIARY MAY ( \
    oathHOTPParams $ oathHOTPCounter ) X-ORIGIN 'OATH-LDAP' )
objectclass ( 1.3.6.1.4.1.5427.1.389.4226.6.3.2 NAME 'oathTOTPToken' SUP oathToken AUXILIARY MAY ( \
    oathTOTPParams $ oathTOTPLastTimeStep $ oathTOTPTimeStepDrift ) X-ORIGIN 'OATH-LDAP' )
";
